"""Rows PO: what may happen to policies on their way to the proxies."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import pairwise

import asyncpg
from e2e.flips import FLIP, lags_seconds
from e2e.load import Connection
from e2e.stack import VISITS, sql

from rigs.faults.inputs import body_for
from rigs.faults.measure import Measured, measured, standard
from rigs.faults.postgres import world_on_pair
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.world import Machine, World

FLIPS_PER_SECOND = 20
NOTICED_SECONDS = 6.0
_NONSENSE = (
    "challenger_weight = 150",
    "challenger_weight = -1",
    "challenger_weight = NULL",
    "challenger_version = NULL, challenger_weight = 10",
    "challenger_version = champion_version, challenger_weight = 10",
)
CANARY = "127.0.0.2"
_PLANTED = (
    "169.254.169.254:80", "[fe80::1]:80", "[::ffff:169.254.169.254]:80", "metadata.google.internal:80", "0.0.0.0:80",
    "unix:/tmp/socket", "unix:///tmp/socket", "file:///etc/passwd", "xds:///models",
)  # fmt: skip
_CHECKS = "SELECT conname AS name FROM pg_constraint WHERE conrelid = 'servingpolicy'::regclass AND contype = 'c'"
_LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name IN ('understudy-listener', 'understudy-policies')"
    " AND datname = current_database()"
)


async def _accepted(world: World, *changes: str) -> int:
    """Return how many of these changes of the policy the database takes."""
    accepted = 0
    for change in changes:
        with suppress(asyncpg.PostgresError):
            await world.sql(f"UPDATE ServingPolicy SET {change} WHERE model_name = 'visits'")
            accepted += 1
    return accepted


async def version_of_another_model(machine: Machine, _span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion("a")
        (other,) = await world.sql(
            """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema)
               SELECT 'other', version, artifact_path, framework, input_schema, output_schema FROM ModelVersion
               RETURNING id"""
        )
        columns = ("champion_version", "challenger_version", "shadow_version")
        changes = [f"{column} = {version}" for column in columns for version in (other["id"], 999_999)]
        return {"tried": len(changes), "accepted": await _accepted(world, *changes)}


async def planted_endpoints(machine: Machine, _span: Span) -> Figures:
    heard: list[asyncio.StreamWriter] = []
    canary = await asyncio.start_server(lambda _, writer: heard.append(writer), CANARY, 0)
    port = canary.sockets[0].getsockname()[1]
    async with canary, machine.world() as world:
        await world.champion("a")
        planted = await world.register("challenger")
        await world.sql("UPDATE Installation SET loopback_endpoints = FALSE")
        accepted = 0
        for target in (*_PLANTED, f"{CANARY}:{port}", f"localhost:{port}"):
            with suppress(asyncpg.PostgresError):
                await world.sql("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", planted, target)
                accepted += 1
        # Past the database: the proxy judges the address once more, by the operator's own list.
        await world.start_proxy(endpoint_allow="127.0.0.1/32")
        await world.sql("ALTER TABLE ModelEndpoint DISABLE TRIGGER modelendpoint_guard")
        await world.sql("UPDATE ModelEndpoint SET target = $1", f"{CANARY}:{port}")
        await asyncio.sleep(NOTICED_SECONDS / 2)
        connection = Connection("127.0.0.1", world.port)
        answers = [await connection.post(VISITS, body_for(number)) for number in range(10)]
        connection.close()
        return {
            "tried": len(_PLANTED) + 2,
            "accepted": accepted,
            "refused_calls": sum(answer.status == 503 for answer in answers),
            "connections_to_canary": len(heard),
        }


async def nonsense(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion("a")
        await world.policy(challenger_version=await world.register("challenger"))
        accepted = await _accepted(world, *_NONSENSE)
        await world.start_proxy()
        rejected = 0.0

        @asynccontextmanager
        async def unguarded() -> AsyncIterator[None]:
            nonlocal rejected
            await world.sql("ALTER TABLE ServingPolicy DISABLE TRIGGER servingpolicy_guard")
            for row in await world.sql(_CHECKS):
                await world.sql(f"ALTER TABLE ServingPolicy DROP CONSTRAINT {row['name']}")
            await world.sql("UPDATE ServingPolicy SET challenger_weight = 150, generation = generation + 1")
            await asyncio.sleep(span.during / 2)
            rejected = await asyncio.to_thread(world.metric, "policy_rejected{")
            yield

        figures = await standard(world, unguarded(), span._replace(during=span.during / 2))
        return {**figures, "accepted": accepted, "policy_rejected": rejected}


async def flips(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion("a")
        other = await world.register("challenger")
        await world.start_proxy()
        committed_at: dict[int, float] = {}

        @asynccontextmanager
        async def flipping() -> AsyncIterator[None]:
            connection = await asyncpg.connect(world.url)
            ends = time.monotonic() + span.during
            while time.monotonic() < ends:
                generation = await connection.fetchval(FLIP, world.versions["a"], other, "visits")
                committed_at[generation] = time.monotonic()
                await asyncio.sleep(1 / FLIPS_PER_SECOND)
            await connection.close()
            yield

        seen = await measured(world, flipping(), span._replace(during=0.0))
        return {**_flipped(seen, committed_at), **await world.lost_and_doubled(seen.load)}


def _flipped(seen: Measured, committed_at: dict[int, float]) -> dict[str, float]:
    lags = lags_seconds(seen.load.answers, committed_at)
    return {
        "requests": len(seen.load.answers),
        "failed": len(seen.failed),
        "flips": len(committed_at),
        "cross_version_answers": len(seen.wrong),
        "propagation_p99_s": lags[int(len(lags) * 0.99) - 1],
        "propagation_max_s": lags[-1],
    }


async def notifications_lost(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion("a")
        other = await world.register("challenger")
        await world.start_proxy()
        committed_at: dict[int, float] = {}

        @asynccontextmanager
        async def frozen() -> AsyncIterator[None]:
            pids = [row["pid"] for row in await world.sql(_LISTENERS)]
            with _stopped(pids):
                (row,) = await world.sql(FLIP, world.versions["a"], other, "visits")
                committed_at[row["generation"]] = time.monotonic()
                await asyncio.sleep(max(NOTICED_SECONDS, span.during))
            yield

        seen = await measured(world, frozen(), span._replace(during=0.0))
        return {**_flipped(seen, committed_at), **await world.lost_and_doubled(seen.load)}


@contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


async def stale_replica(machine: Machine, span: Span) -> Figures:
    """Lead the proxy to a standby that stopped following before the last changes of the policy."""
    async with world_on_pair(machine, synchronous=False) as (world, pair):
        generations: list[float] = []

        @asynccontextmanager
        async def stale() -> AsyncIterator[None]:
            await sql(pair.standby.url, "SELECT pg_wal_replay_pause()")
            for percent in (10, 20, 30):
                await world.policy(shadow_percent=percent)
            await asyncio.sleep(1.0)
            generations.append(world.metric("policy_generation"))
            primary = world.postgres.upstream_port
            world.postgres.move(int(pair.standby.url.rpartition(":")[2].partition("/")[0]))
            ends = time.monotonic() + max(NOTICED_SECONDS, span.during)
            while time.monotonic() < ends:
                generations.append(await asyncio.to_thread(world.metric, "policy_generation"))
                await asyncio.sleep(0.2)
            world.postgres.move(primary)
            yield

        figures = await standard(world, stale(), span._replace(during=0.0))
        return {**figures, "went_back": sum(b < a for a, b in pairwise(generations))}


ROWS = (
    Row(
        "PO-01",
        "a missing or another model's version, in SQL",
        "refused by the database",
        at_most(accepted=0),
        version_of_another_model,
    ),
    Row(
        "PO-02",
        "weights and roles that make no sense; then unguarded",
        "refused; unguarded, the last good policy stays",
        (*at_most(accepted=0), *NOTHING_LOST, *at_least(policy_rejected=1)),
        nonsense,
    ),
    Row(
        "PO-03",
        "20 flips a second under load",
        "each call sees one policy",
        (*NOTHING_LOST, *at_most(cross_version_answers=0, propagation_p99_s=1.0), *at_least(flips=50)),
        flips,
    ),
    Row(
        "PO-04",
        "notifications lost (all policy connections silent)",
        "a poll finds the change",
        (*NOTHING_LOST, *at_most(propagation_max_s=5)),
        notifications_lost,
    ),
    Row(
        "PO-05",
        "a replica with older policies answers",
        "ignored",
        (*NOTHING_LOST, *at_most(went_back=0)),
        stale_replica,
    ),
    Row(
        "PO-06",
        "endpoints at link-local, loopback, unix:, file:; and past the guards",
        "refused by the database, and by who connects",
        (*at_most(accepted=0, connections_to_canary=0), *at_least(tried=8, refused_calls=1)),
        planted_endpoints,
    ),
)
