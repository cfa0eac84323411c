"""``make lifecycle-exchanges``: champions exchanged on servers whose memory is short, under 200 calls a second.

``availability``: one server with room for two versions; a champion before makes room for the version after the next
one. ``resource``: two servers with room for one each, one of which exchanges its version while the other one serves.
Each next version gets half of the calls for a moment, and is champion then. That a champion before is kept for half an
hour is passed by SQL.

Exit status 0: no call failed, none was answered by the champion in the place of a challenger that failed, and at no
look was the champion on no server; 1: not.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson
from e2e.lifecycle import Lifecycle, until
from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, sql

from rigs.lifecycle.settled import loaded_at
from rigs.lifecycle.temporary_stack import a_stack
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.giving_way import Transition
from understudy.core.loading.memory import FILLED_AT_MOST, PADS
from understudy.core.loading.served_name import served_name
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

LABELS: Final = ("1", "2", "3")
CALLS_PER_SECOND: Final = 200.0
LONGEST_SECONDS: Final = 7_200.0
SHARED_SECONDS: Final = 2.0
"""How long champion and challenger share the calls."""
LOOK_SECONDS: Final = 0.2
TIMEOUT_MS: Final = 4_000
ACTOR: Final = Actor("rig", "cli", "a champion is exchanged")
OK: Final = 200
_CHAMPION = "INSERT INTO ServingPolicy (model_name, champion_version, guard) VALUES ('visits', $1, 'off')"
_SHARE = "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 50"
_CHANGE = "UPDATE ServingPolicy SET champion_version = $1, challenger_version = NULL, challenger_weight = 0"
_WANTED_BY_ROLE = "UPDATE VersionLoading SET wanted_until = NULL"
_LATER = """
    UPDATE Placement SET decided_at = now() - INTERVAL '31 minutes'
    WHERE why = 'previous champion' AND model_version_id = $1 RETURNING server
"""
_AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE' AND model_version_id = {}"
_LOOK = """
    SELECT version, (SELECT count(*) FROM ModelEndpoint WHERE model_version_id = champion_version)
    FROM ServingPolicy JOIN ModelVersion ON ModelVersion.id = champion_version
"""


class Case(NamedTuple):
    """Servers, and how they go from one version to the next."""

    servers: int
    room: int
    """Versions that each has room for."""
    enough: int
    """Servers that have a version before it gets calls."""


CASES: Final[Mapping[Transition, Case]] = {
    Transition.AVAILABILITY: Case(servers=1, room=2, enough=1),
    Transition.RESOURCE: Case(servers=2, room=1, enough=1),
}


class Answers(list[Answer]):
    """Counts answers by version, keeps those that failed, and counts those that the champion gave for a challenger."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: Counter[str] = Counter()
        self.fallbacks = 0

    def append(self, answer: Answer) -> None:
        """Count an answer, or keep it."""
        if answer.status != OK:
            super().append(answer)
            return
        document = orjson.loads(answer.body)
        self.versions[str(document["version"])] += 1
        self.fallbacks += document.get("fallback") is not None


class Exchange:
    """The processes of one case."""

    def __init__(self, stack: Stack, transition: Transition) -> None:
        self.stack = stack
        self.transition = transition
        self.case = CASES[transition]
        self.members = [Lifecycle(stack, f"onnx-{number}") for number in range(self.case.servers)]
        self.loading = PostgresLoadingRegistry(stack.database_url, timeout_seconds=5.0)
        self.ids: dict[str, int] = {}
        self.answers = Answers()
        self.least_endpoints = self.least_servers = self.case.servers
        """Of the champion, at any look."""
        self.looks = 0

    async def start(self) -> None:
        """Start everything, with the first version as champion on every server."""
        await migrations.upgrade(self.stack.database_url)
        memory = int((self.case.room + 0.5) * PADS["understudy"] / FILLED_AT_MOST)
        for member in self.members:
            member.start_server()
            member.start_agent(
                {"UNDERSTUDY_SERVER_MEMORY_BYTES": str(memory), "UNDERSTUDY_SERVER_TRANSITION": self.transition.value}
            )
        self.members[0].start_monitor()
        registry = PostgresRegistry(self.stack.database_url)
        for label in LABELS:
            example, artifact = example_version("visits", int(label)), self.members[0].put_artifact(int(label))
            new = NewVersion("visits", label, artifact, "sklearn", example.input_schema, example.output_schema)
            record = await register_version(registry, new._replace(group_name="onnx", timeout_ms=TIMEOUT_MS), ACTOR)
            self.ids[label] = record.id
            if label != LABELS[0]:
                await self.loading.unload("visits", label, ACTOR)
        await self.until_available(LABELS[0], self.case.servers)
        await self._ask(_CHAMPION, self.ids[LABELS[0]])
        self.stack.start_proxy()

    async def change(self, label: str) -> None:
        """Make a version champion, and wait until each server has it."""
        before = (await self._ask(_LOOK))[0][0]
        await self.loading.load("visits", label, ACTOR, group_name=None, seconds=None)
        await self.until_available(label, self.case.enough)
        await self._ask(_SHARE, self.ids[label])
        await asyncio.sleep(SHARED_SECONDS)
        await self._ask(_CHANGE, self.ids[label])
        await self._ask(_WANTED_BY_ROLE)
        while not await self._ask(_LATER, self.ids[before]):
            await asyncio.sleep(LOOK_SECONDS)  # until the leader has noticed which one was champion before
        await self.until_available(label, self.case.servers)

    async def until_available(self, label: str, servers: int) -> None:
        """Wait until so many servers have a version, at least."""
        question = _AVAILABLE.format(self.ids[label])
        await until(self.stack.database_url, f"SELECT least(({question}), {servers})", servers)

    async def look(self) -> None:
        """Look where the champion is, until cancelled."""
        while True:
            label, endpoints = (await self._ask(_LOOK))[0]
            loaded = [await loaded_at(member.control_port) or () for member in self.members]
            if (await self._ask(_LOOK))[0][0] == label:  # else it was exchanged between the two
                self.looks += 1
                self.least_endpoints = min(self.least_endpoints, endpoints)
                has = sum(served_name("visits", label) in one for one in loaded)
                self.least_servers = min(self.least_servers, has)
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await sql(self.stack.database_url, query, *values)]


def main() -> int:
    """Make the changes that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-exchanges")
    parser.add_argument("--changes", type=int, default=20, help="how many in each case (20)")
    parser.add_argument("--only", nargs="*", type=Transition, choices=list(Transition), default=list(Transition))
    asked = parser.parse_args()
    return max([_exchanged(transition, asked.changes) for transition in asked.only], default=1)


def _exchanged(transition: Transition, changes: int) -> int:
    with a_stack("exchanges") as stack:
        return asyncio.run(_run(Exchange(stack, transition), changes))


async def _run(exchange: Exchange, changes: int) -> int:
    print(f"{exchange.transition}: {changes} changes, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    await exchange.start()
    load = Load(answers=exchange.answers)
    calling = asyncio.create_task(_call(exchange.stack.proxy_port, load))
    looking = asyncio.create_task(exchange.look())
    took = []
    try:
        for number in range(1, changes + 1):
            began = time.monotonic()
            await exchange.change(LABELS[number % len(LABELS)])
            took.append(time.monotonic() - began)
            print(
                f"{number:3d}  {took[-1]:.1f} s, {len(load.answers)} failed, {exchange.answers.fallbacks} fell back",
                flush=True,
            )
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
    finally:
        looking.cancel()
        load.is_over = True
        await calling
    return _judge(exchange, sorted(took))


async def _call(port: int, load: Load) -> None:
    bodies = PREDICT_BODIES
    await run_load(
        port,
        VISITS,
        lambda number: bodies[number % len(bodies)],
        per_second=CALLS_PER_SECOND,
        seconds=LONGEST_SECONDS,
        connections=32,
        load=load,
    )


def _judge(exchange: Exchange, took: list[float]) -> int:
    """Print what was found, and return the exit status."""
    answers = exchange.answers
    print(
        f"{exchange.transition}: {len(took)} changes, {took[len(took) // 2]:.1f} s (median), "
        f"{took[-1]:.1f} s (longest); {answers.versions.total():,} answers, {len(answers)} failed, "
        f"{answers.fallbacks} fell back; the champion was "
        f"on {exchange.least_servers} servers and had {exchange.least_endpoints} endpoints at the least in "
        f"{exchange.looks:,} looks; load of the machine {os.getloadavg()[0]:.1f}"
    )
    for answer in list(answers)[:10]:
        print(f"  status {answer.status} after {answer.seconds * 1000:.0f} ms: {answer.body[:300]!r}")
    is_good = not answers and not answers.fallbacks and exchange.least_servers > 0 and exchange.least_endpoints > 0
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
