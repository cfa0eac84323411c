"""Rows PG: what Postgres may do."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from e2e.stack import get, sql

from rigs.faults.measure import NOTHING, measured, standard
from rigs.faults.pooler import a_pooler
from rigs.faults.row import NOTHING_LOST, Figures, Row, Span, at_least, at_most
from rigs.faults.small_disk import small_disk
from rigs.faults.standby import Pair, a_cluster_with_standby
from rigs.faults.tcp import Behaviour
from rigs.faults.world import DEADLINE_MS, Machine, World, database_url
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.errors import RegistryUnavailable

STILL_UP_SECONDS = 3.0
PATIENCE_SECONDS = 30.0
LET_THROUGH_SECONDS = 1.5
"""Between two deadlocks, so that the writer's next attempt meets none."""
_HEARD_SECONDS = 0.25
"""A change that is seen this soon was heard, not polled for."""


async def no_fault(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()
        return await standard(world, NOTHING, span)


async def down_at_start_with_snapshot(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        port = await world.serve()
        await _until((world.folder / "state" / "policy.json").exists, "the proxy wrote no policy.json")
        await asyncio.to_thread(world.stack.processes.pop("proxy").stop)
        with world.postgres.refusing():
            began = time.monotonic()
            await world.start_proxy(port=port)
            ready_s = time.monotonic() - began
            degraded = world.metric("policy_degraded")
            seen = await measured(world, NOTHING, Span(0.0, span.during, 0.0))
        rows = await world.lost_and_doubled(seen.load)
        return {**seen.figures(), **rows, "ready_s": ready_s, "degraded": degraded}


async def down_at_start_without_snapshot(machine: Machine, _span: Span) -> Figures:
    async with machine.world() as world:
        await world.champion()
        with world.postgres.refusing():
            port = await world.start_proxy(wait_ready=False)
            url = f"http://127.0.0.1:{port}"
            await _until(lambda: get(f"{url}/livez")[0] == 200, "the proxy is not alive without Postgres")
            await asyncio.sleep(STILL_UP_SECONDS)
            live, ready = get(f"{url}/livez")[0], get(f"{url}/readyz")[0]
            ended = world.proxy.child.poll() is not None
        mended = time.monotonic()
        await asyncio.to_thread(world.stack.wait_ready)
        back = time.monotonic() - mended
        return {"restarts": float(ended), "livez": live, "readyz": ready, "ready_after_clear_s": back}


async def refused(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()

        async def drained() -> float:
            mended = time.monotonic()
            await _until(lambda: world.metric("prediction_log_oldest_seconds") < 1.0, "the spool is not shipped")
            return time.monotonic() - mended

        seen = await measured(world, world.postgres.refusing(), span, on_mended=drained)
        return {**seen.figures(), **await world.lost_and_doubled(seen.load), "drain_s": seen.after_mending}


async def blackholed(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()
        seen = await measured(world, world.postgres.blackholed(), span, on_mended=lambda: _listens_again(world))
        return {**seen.figures(), **await world.lost_and_doubled(seen.load), "listener_back_s": seen.after_mending}


async def _listens_again(world: World) -> float:
    """Change the policy until a change is seen at once, and return how long that took."""
    began = time.monotonic()
    percent = 0
    while time.monotonic() < began + PATIENCE_SECONDS:
        percent = (percent + 1) % 100
        await world.policy(shadow_percent=percent)
        (row,) = await world.sql("SELECT generation FROM ServingPolicy WHERE model_name = 'visits'")
        await asyncio.sleep(_HEARD_SECONDS)
        if world.metric("policy_generation") >= row["generation"]:
            break
    return time.monotonic() - began


async def slow(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()
        return await standard(world, world.postgres.doing(Behaviour(latency_seconds=0.25)), span)


async def crash(machine: Machine, span: Span) -> Figures:
    @asynccontextmanager
    async def stopped() -> AsyncIterator[None]:
        await asyncio.to_thread(machine.postgres.stop, "immediate")
        try:
            yield
        finally:
            await asyncio.to_thread(machine.postgres.start)

    async with machine.world() as world:
        await world.serve()
        return await standard(world, stopped(), span)


@asynccontextmanager
async def world_on_pair(machine: Machine, *, synchronous: bool) -> AsyncIterator[tuple[World, Pair]]:
    """Lend a world whose database is on a primary of its own with a standby."""
    async with machine.world() as world, a_cluster_with_standby(world.folder / "pair", synchronous=synchronous) as pair:
        world.url = pair.primary.url
        world.postgres.move(urlsplit(pair.primary.url).port or 0)
        world.stack.database_url = database_url(pair.primary.url, "understudy", world.postgres.port)
        await world.serve()
        yield world, pair


async def failover(machine: Machine, span: Span) -> Figures:
    async with world_on_pair(machine, synchronous=True) as (world, pair):
        generations: list[float] = []
        recovered = 0.0

        @asynccontextmanager
        async def promoted() -> AsyncIterator[None]:
            nonlocal recovered
            generations.append(world.metric("policy_generation"))
            await pair.promote()
            world.url = pair.standby.url
            began = time.monotonic()
            world.postgres.move(urlsplit(pair.standby.url).port or 0)
            await _until(lambda: world.metric("policy_degraded") == 0, "the proxy does not find the new primary")
            await world.policy(shadow_percent=50)
            await _until(lambda: world.metric("policy_generation") > generations[0], "the new policy is not seen")
            recovered = time.monotonic() - began
            yield
            generations.append(world.metric("policy_generation"))

        figures = await standard(world, promoted(), span)
        went_back = float(generations != sorted(generations))
        return {**figures, "recover_s": recovered, "policy_went_back": went_back}


async def read_only_then_full(machine: Machine, span: Span) -> Figures:
    @asynccontextmanager
    async def refusing() -> AsyncIterator[None]:
        taken: list[asyncpg.Connection] = []
        admin = await asyncpg.connect(machine.postgres.url)
        try:
            await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            await admin.execute("SELECT pg_reload_conf()")
            await asyncio.sleep(span.during / 2)
            await admin.execute("SET default_transaction_read_only = off")
            with suppress(asyncpg.TooManyConnectionsError):
                await _end_sessions(admin)
                while True:
                    taken.append(await asyncpg.connect(machine.url_of("postgres")))
            yield
        finally:
            for connection in taken:
                connection.terminate()
            await admin.execute("SET default_transaction_read_only = off")
            await admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
            await admin.execute("SELECT pg_reload_conf()")
            await admin.close()

    async with machine.world() as world:
        await world.serve()
        return await standard(world, refusing(), span._replace(during=span.during / 2))


async def _end_sessions(admin: asyncpg.Connection) -> None:
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'understudy%'"
    )


async def locked(machine: Machine, span: Span) -> Figures:
    async with machine.world() as world:
        await world.serve()

        @asynccontextmanager
        async def lock() -> AsyncIterator[None]:
            connection = await asyncpg.connect(world.url)
            async with connection.transaction():
                await connection.execute("LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")
                yield
            await connection.close()

        return await standard(world, lock(), span)


async def disk_full(machine: Machine, span: Span) -> Figures:
    pid = machine.postgres.pid
    owner = Path(f"/proc/{pid}").stat().st_uid
    with small_disk(machine.folder / "small", "32m", owner) as folder:
        await sql(machine.postgres.url, f"CREATE TABLESPACE small LOCATION '{folder}'")
        try:
            async with machine.world(tablespace="small") as world:
                await world.serve()
                figures = await standard(world, _full(world), span)
                return {**figures, "refused_53100": world.metric("prediction_log_errors_total")}
        finally:
            await sql(machine.postgres.url, "DROP TABLESPACE small")


@asynccontextmanager
async def _full(world: World) -> AsyncIterator[None]:
    connection = await asyncpg.connect(world.url)
    await connection.execute("CREATE TABLE filler (content bytea)")
    await connection.execute("ALTER TABLE filler ALTER COLUMN content SET STORAGE EXTERNAL")
    for size in (1_000_000, 100_000, 7_000):
        with suppress(asyncpg.DiskFullError):
            for _ in range(1_000):
                await connection.execute("INSERT INTO filler SELECT convert_to(repeat('x', $1), 'UTF8')", size)
    try:
        yield
    finally:
        await connection.execute("DROP TABLE filler")
        await connection.close()


async def deadlocks(machine: Machine, span: Span) -> Figures:
    """Make the log's writer the victim of deadlocks: another session locks its rows in the opposite order."""
    async with machine.world() as world:
        await world.serve()

        @asynccontextmanager
        async def crossing() -> AsyncIterator[None]:
            connection = await asyncpg.connect(world.url)
            await connection.execute("SET deadlock_timeout = '30s'")
            ends = time.monotonic() + span.during
            while time.monotonic() < ends:
                with suppress(asyncpg.DeadlockDetectedError):
                    async with connection.transaction():
                        await connection.execute("SELECT FROM PredictionWindow FOR UPDATE")
                        await asyncio.sleep(0.5)
                        await connection.execute("SELECT FROM SpoolOffset FOR UPDATE")
                await asyncio.sleep(LET_THROUGH_SECONDS)
            yield
            await connection.close()

        figures = await standard(world, crossing(), span._replace(during=0.0))
        (row,) = await world.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        unretried = world.metric("prediction_log_errors_total")
        return {**figures, "deadlocks": row["deadlocks"], "deadlocks_unretried": unretried}


async def through_pooler(machine: Machine, span: Span) -> Figures:
    """Write the log through a pooler; policies, which are listened for, must be refused by it and not stay silent."""
    async with machine.world() as world, a_pooler(machine.postgres.url, world.folder / "pooler") as pooler:
        pooled = machine.url_of(world.name, pooler.port)
        await world.champion()
        logins = pooler.logins
        await world.start_proxy(log_database_url=pooled)
        figures = await standard(world, NOTHING, span)
        policies = PostgresPolicySource(pooled)
        try:
            await policies.load()
            refused = 0
        except RegistryUnavailable as problem:
            refused = int("pooler" in problem.next_step)
        finally:
            await policies.close()
        return {**figures, "pooled_logins": pooler.logins - logins, "policies_refused": refused}


async def _until(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not await asyncio.to_thread(holds):
        if time.monotonic() > give_up:
            raise TimeoutError(f"{what} within {PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(0.05)


_STATIC = (*NOTHING_LOST, *at_most(p99_ms_delta=5))
ROWS = (
    Row(
        "BASE", "no fault", "the harness itself costs nothing", (*NOTHING_LOST, *at_most(p99_ms=DEADLINE_MS)), no_fault
    ),
    Row(
        "PG-01",
        "down at start, policy snapshot on disk",
        "ready from the snapshot, and says that it is degraded",
        (*NOTHING_LOST, *at_most(ready_s=5), *at_least(degraded=1)),
        down_at_start_with_snapshot,
    ),
    Row(
        "PG-02",
        "down at start, no snapshot",
        "alive and not ready, until Postgres comes",
        (*at_most(restarts=0, livez=200, ready_after_clear_s=2), *at_least(livez=200, readyz=503)),
        down_at_start_without_snapshot,
    ),
    Row("PG-03", "refused under load", "rows wait in the spool", (*_STATIC, *at_most(drain_s=10)), refused),
    Row(
        "PG-04",
        "blackhole (connections open and silent)",
        "no request waits; the dead listener is found",
        (*_STATIC, *at_most(listener_back_s=5)),
        blackholed,
    ),
    Row("PG-05", "each round trip 500 ms longer", "nothing on the request path", _STATIC, slow),
    Row("PG-06", "stopped at once, then started", "as PG-03", NOTHING_LOST, crash),
    Row(
        "PG-07",
        "primary stopped, standby promoted",
        "reconnects; the policy never goes back",
        (*NOTHING_LOST, *at_most(recover_s=5, policy_went_back=0)),
        failover,
    ),
    Row("PG-08", "read-only, then out of connections", "as PG-03", NOTHING_LOST, read_only_then_full),
    Row("PG-09", "PredictionLog locked exclusively", "the writer gives up and tries again", NOTHING_LOST, locked),
    Row("PG-10", "disk full (tablespace on a 32 MB tmpfs)", "rows are kept and tried again", NOTHING_LOST, disk_full),
    Row(
        "PG-11",
        "deadlocks with the log's writer as victim",
        "tried again within the same call",
        (*at_most(rows_lost=0, rows_dup=0, deadlocks_unretried=0), *at_least(deadlocks=1)),
        deadlocks,
    ),
    Row(
        "PG-12",
        "pgbouncer in transaction mode",
        "the log goes through it; policies are refused and say why",
        (*NOTHING_LOST, *at_least(pooled_logins=1, policies_refused=1)),
        through_pooler,
    ),
)
