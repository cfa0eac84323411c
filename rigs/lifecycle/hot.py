"""``make lifecycle-hot``: one of 50 versions gets 20 times its calls, and the servers that these need.

Four model servers of one group with their agents, a monitor and a proxy. A version answers four rows at once on each
server that has it, in 200 ms each, so one server is too few for the hot one. 49 versions are for one server, and that
one for ``1..4`` by its calls.

Exit status 0: the replicas were decided within ``MAX_DECISION_SECONDS`` of the jump, were available as soon as they
were loaded, and the 99th percentile was back within 1.3 times what it was before without a failed call; 1: not.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from e2e.lifecycle import Lifecycle, until
from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, Stack, sql

from rigs.lifecycle.slow_server import AT_ONCE
from rigs.lifecycle.temporary_stack import a_stack, end_when_told
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.replicas import Replicas
from understudy.core.windows.window import WINDOW_SECONDS
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

SERVERS: Final = 4
VERSIONS: Final = 50
HOT: Final = "model-0"
USUAL_PER_SECOND: Final = 1.5
TIMES: Final = 20
OTHERS_PER_SECOND: Final = 10.0
LONGEST_SECONDS: Final = 900.0
MEMORY_BYTES: Final = 2 * 2**30
TIMEOUT_MS: Final = 4_000
LOOK_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 15.0
"""After the last replica came: calls that began before are over, and each proxy has read its endpoint."""
STORED_SECONDS: Final = WINDOW_SECONDS + 5.0
"""Until the calls of a window are counted in the database, from its beginning."""
MAX_DECISION_SECONDS: Final = STORED_SECONDS + 2 * WINDOW_SECONDS
"""Two readings, 15 s from one another, of what is counted."""
MAX_LOAD_SECONDS: Final = 30.0
MAX_RATIO: Final = 1.3
GIVE_UP_SECONDS: Final = 180.0
OK: Final = 200
ACTOR: Final = Actor("rig", "cli", "one version gets hot")
_PLACED: Final = """
    SELECT count(*), count(*) FILTER (WHERE EXISTS (
        SELECT FROM LoadedVersion AS its JOIN ModelEndpoint AS endpoint USING (model_version_id, server)
        WHERE its.model_version_id = Placement.model_version_id AND its.server = Placement.server
          AND its.state = 'AVAILABLE'))
    FROM Placement WHERE model_version_id = $1
"""


class Found(NamedTuple):
    """What came of it."""

    before: Sequence[Answer]
    """To the hot version, before the jump."""
    after: Sequence[Answer]
    """Once all its replicas were available."""
    hot: Sequence[Answer]
    """From the jump on."""
    others: Sequence[Answer]
    """To the other versions."""
    replicas: int
    """Before the jump."""
    decided: float
    """Seconds from the jump until every server was to have it."""
    ready: float
    """And until each had it."""


class HotSpot:
    """The processes, and what they are asked."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.members = [Lifecycle(stack, f"onnx-{number}") for number in range(SERVERS)]
        self.hot_id = 0

    async def start(self) -> None:
        """Start everything, with 50 champions that are loaded on one server each."""
        os.environ["UNDERSTUDY_BACKEND_CONCURRENCY"] = os.environ["UNDERSTUDY_REPLICA_CONCURRENCY"] = str(AT_ONCE)
        await migrations.upgrade(self.stack.database_url)
        for member in self.members:
            member.start_server(module="rigs.lifecycle.slow_server")
            member.start_agent({"UNDERSTUDY_SERVER_MEMORY_BYTES": str(MEMORY_BYTES)})
        self.members[0].start_monitor()
        registry, artifact = PostgresRegistry(self.stack.database_url), self.members[0].put_artifact(1)
        example = example_version("visits", 1)
        for number in range(VERSIONS):
            new = NewVersion(f"model-{number}", "1", artifact, "sklearn", example.input_schema, example.output_schema)
            replicas = Replicas(1, SERVERS) if new.model_name == HOT else Replicas(1, 1)
            new = new._replace(group_name="onnx", replicas=replicas, cache_ttl_seconds=0, timeout_ms=TIMEOUT_MS)
            made = await register_version(registry, new, ACTOR)
            self.hot_id = made.id if new.model_name == HOT else self.hot_id
        loaded = "SELECT count(DISTINCT model_version_id)::int FROM LoadedVersion WHERE state = 'AVAILABLE'"
        await until(self.stack.database_url, loaded, VERSIONS, GIVE_UP_SECONDS)
        await self._ask(
            "INSERT INTO ServingPolicy (model_name, champion_version, guard) SELECT model_name, id, 'off'"
            " FROM ModelVersion"
        )
        self.stack.start_proxy(backend_batch_rows=1)

    async def replicas(self) -> tuple[int, int]:
        """Return on how many servers the hot version is to be, and on how many it can be called."""
        placed, available = (await self._ask(_PLACED, self.hot_id))[0]
        return placed, available

    async def per_server(self) -> list[int]:
        """Return how many versions each server is to have."""
        rows = await self._ask("SELECT count(*) FROM Placement GROUP BY server ORDER BY server")
        return [row[0] for row in rows]

    async def _ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await sql(self.stack.database_url, query, *values)]


def main() -> int:
    """Have one version get hot, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-hot")
    parser.add_argument("--seconds", type=float, default=60.0, help="calls before the jump, and after it (60)")
    asked = parser.parse_args()
    end_when_told()
    with a_stack("hot") as stack:
        return asyncio.run(_run(HotSpot(stack), asked.seconds))


async def _run(spot: HotSpot, seconds: float) -> int:
    await spot.start()
    print(f"versions by server: {await spot.per_server()}; load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    others = Load()
    calls = _call(spot.stack.proxy_port, others, OTHERS_PER_SECOND, lambda n: f"model-{1 + n % (VERSIONS - 1)}")
    beside = asyncio.create_task(calls)
    try:
        before = Load()
        await _call(spot.stack.proxy_port, before, USUAL_PER_SECOND, lambda _: HOT, seconds)
        replicas = (await spot.replicas())[0]
        hot = Load()
        hotly = asyncio.create_task(_call(spot.stack.proxy_port, hot, USUAL_PER_SECOND * TIMES, lambda _: HOT))
        try:
            decided, ready = await _until_ready(spot)
            await asyncio.sleep(SETTLE_SECONDS)
            settled = time.monotonic()
            await asyncio.sleep(seconds)
        finally:
            hot.is_over = True
            await hotly
    finally:
        others.is_over = True
        await beside
    after = [answer for answer in hot.answers if answer.sent >= settled]
    return _judge(Found(before.answers, after, hot.answers, others.answers, replicas, decided, ready))


async def _until_ready(spot: HotSpot) -> tuple[float, float]:
    """Wait until every server is to have the hot version, and until each has it; return the seconds of both."""
    began, decided, last = time.monotonic(), 0.0, (0, 0)
    while True:
        replicas, passed = await spot.replicas(), time.monotonic() - began
        if replicas != last:
            print(f"{passed:6.1f} s  to be on {replicas[0]}, available on {replicas[1]}", flush=True)
            last = replicas
        decided = decided or (passed if replicas[0] == SERVERS else 0.0)
        if replicas == (SERVERS, SERVERS):
            return decided, passed
        if passed > GIVE_UP_SECONDS:
            raise TimeoutError(f"the version is to be on {replicas[0]} servers, and available on {replicas[1]}")
        await asyncio.sleep(LOOK_SECONDS)


async def _call(port: int, load: Load, per_second: float, model_of: Any, seconds: float = LONGEST_SECONDS) -> None:
    bodies = PREDICT_BODIES
    await run_load(
        port,
        lambda number: f"/v1/models/{model_of(number)}/predict",
        lambda number: bodies[number % len(bodies)],
        per_second=per_second,
        seconds=seconds,
        connections=256,
        load=load,
    )


def _judge(found: Found) -> int:
    """Print what was found, and return the exit status."""
    before, after, hot, others, replicas, decided, ready = found
    usual, now, beside = _p99(before), _p99(after), _p99(others)
    failed, of_others = _failed(after), _failed(others)
    print(
        f"on {replicas} of {SERVERS} servers before; all were decided {decided:.1f} s after the jump, and available"
        f" {ready - decided:.1f} s later; 99th percentile {usual * 1e3:.0f} ms before, {now * 1e3:.0f} ms after"
        f" ({now / usual:.2f} times); {failed} of {len(after):,} calls failed after it, {_failed(hot) - failed} of"
        f" {len(hot) - len(after):,} until then; other versions: {beside * 1e3:.0f} ms, {of_others} of {len(others):,}"
        f" failed; load of the machine {os.getloadavg()[0]:.1f}"
    )
    is_soon = decided <= MAX_DECISION_SECONDS and ready - decided <= MAX_LOAD_SECONDS
    return 0 if replicas == 1 and is_soon and now <= MAX_RATIO * usual and not failed and not of_others else 1


def _p99(answers: Sequence[Answer]) -> float:
    ordered = sorted(answer.seconds for answer in answers)
    return ordered[int(len(ordered) * 0.99)]


def _failed(answers: Sequence[Answer]) -> int:
    return sum(answer.status != OK for answer in answers)


if __name__ == "__main__":
    sys.exit(main())
