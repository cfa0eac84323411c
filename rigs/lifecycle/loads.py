"""``make lifecycle-loads``: how long a version takes until it can be called, and until it is gone.

Each of so many versions has a file of 10 MB. It is registered, and awaited at its server with its endpoint; then it is
unloaded, and awaited at its end, while a proxy is live. Then as many are registered whose notification is lost: that of
every second one is never sent, and else the connections that listen are cut just when it is due. All of it is real
processes, with a Postgres of their own.

Exit status 0: every figure is within its target; 1: not.
"""

import argparse
import asyncio
import os
import shutil
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from e2e.lifecycle import Lifecycle
from e2e.stack import Stack, sql

from rigs.lifecycle.temporary_stack import a_stack, end_when_told
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

MODEL: Final = "visits"
ACTOR: Final = Actor("rig", "cli", "loads are measured")
ARTIFACT_BYTES: Final = 10_000_000
TIMEOUT_MS: Final = 1_000
P95_SECONDS: Final = 2.0
AFTER_DRAIN_SECONDS: Final = 2.0
END_SECONDS: Final = TIMEOUT_MS / 1_000 + 1.0 + AFTER_DRAIN_SECONDS
"""A drain is the version's time-out and a second where no proxy says sooner that its calls are over."""
LOST_SECONDS: Final = 7.0
GIVE_UP_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.02
_STATE = "SELECT state FROM LoadedVersion v JOIN ModelVersion m ON m.id = v.model_version_id WHERE version = $1"
_CUT = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'understudy-listener'"


class Unload(NamedTuple):
    """How long an unload took, and of that until the server was asked to drop the version."""

    seconds: float
    drain_seconds: float

    @property
    def rest_seconds(self) -> float:
        """All but the drain."""
        return self.seconds - self.drain_seconds


class Loads:
    """A model server with its agent, the monitor that places versions, and a proxy."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._url = stack.database_url
        self._lifecycle = Lifecycle(stack)
        self._loading = PostgresLoadingRegistry(self._url, timeout_seconds=5.0)
        self._connections_cut = 0

    async def start(self) -> None:
        """Start it, without versions."""
        await migrations.upgrade(self._url)
        self._lifecycle.start_server()
        self._lifecycle.start_agent()
        self._lifecycle.start_monitor()
        await self.load("first")  # has everything that is imported late imported
        champion = (
            "INSERT INTO ServingPolicy (model_name, champion_version, guard) SELECT $1, id, 'off' FROM ModelVersion"
        )
        await sql(self._url, champion, MODEL)
        self._stack.start_proxy()

    async def load(self, label: str, *, lost: str = "") -> float:
        """Return how long a version takes from its registration until its server has it, with its endpoint.

        ``lost`` is how the agent's notification is lost: it is never ``sent``, or what listens is ``cut``.
        """
        folder = self._lifecycle.root / label
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(example_version(MODEL, 1).read())
        (folder / "padding.bin").write_bytes(label.encode() + bytes(ARTIFACT_BYTES))
        if lost == "sent":
            await sql(self._url, "ALTER TABLE Placement DISABLE TRIGGER placement_tell")
        began_at = time.monotonic()
        await self._register(label)
        if lost == "cut":
            self._connections_cut += (await sql(self._url, _CUT))[0][0]
        await self._until(label, {"AVAILABLE"})
        seconds = time.monotonic() - began_at
        if lost == "sent":
            await sql(self._url, "ALTER TABLE Placement ENABLE TRIGGER placement_tell")
        shutil.rmtree(folder)
        return seconds

    async def unload(self, label: str) -> Unload:
        """Return how long a version takes from when it is unwanted until its server has dropped it."""
        began_at = time.monotonic()
        await self._loading.unload(MODEL, label, ACTOR)
        quiescing_at = await self._until(label, {"QUIESCING", "UNLOADING", "END"})
        unloading_at = await self._until(label, {"UNLOADING", "END"})
        ended_at = await self._until(label, {"END"})
        return Unload(ended_at - began_at, unloading_at - quiescing_at)

    @property
    def connections_cut(self) -> int:
        """How many connections that listened were cut."""
        return self._connections_cut

    async def _register(self, label: str) -> None:
        example = example_version(MODEL, 1)
        schemas = (example.input_schema, example.output_schema)
        new = NewVersion(MODEL, label, label, "sklearn", *schemas, group_name="onnx", timeout_ms=TIMEOUT_MS)
        await register_version(PostgresRegistry(self._url), new, ACTOR)

    async def _until(self, label: str, states: set[str]) -> float:
        """Wait until a version is in one of these states, and return when it was seen."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while not (rows := await sql(self._url, _STATE, label)) or rows[0][0] not in states:
            if time.monotonic() > give_up:
                raise TimeoutError(f"{label} is none of {sorted(states)} after {GIVE_UP_SECONDS:g} s: {rows}")
            await asyncio.sleep(PAUSE_SECONDS)
        return time.monotonic()


def main() -> int:
    """Measure, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-loads")
    parser.add_argument("--times", type=int, default=50, help="so many of each (50)")
    asked = parser.parse_args()
    end_when_told()
    return asyncio.run(_run(asked.times))


async def _run(times: int) -> int:
    print(f"{times} versions of {ARTIFACT_BYTES / 1e6:g} MB, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    with a_stack("loads") as stack:
        loads = Loads(stack)
        await loads.start()
        loaded = [await loads.load(f"told-{number}") for number in range(times)]
        p95 = sorted(loaded)[min(int(0.95 * times), times - 1)]
        is_good = _told("registered until available, p95", p95, P95_SECONDS, loaded)
        unloads = [await loads.unload(f"told-{number}") for number in range(times)]
        drains = [one.drain_seconds for one in unloads]
        print(f"    a drain takes {median(drains):.2f} s (median), {max(drains):.2f} s (longest)", flush=True)
        rests = [one.rest_seconds for one in unloads]
        is_good &= _told("unwanted until its end, but for the drain", max(rests), AFTER_DRAIN_SECONDS, rests)
        ends = [one.seconds for one in unloads]
        is_good &= _told("unwanted until its end", max(ends), END_SECONDS, ends)
        lost = [await loads.load(f"lost-{number}", lost=("sent", "cut")[number % 2]) for number in range(times)]
        is_good &= _told("without its notification", max(lost), LOST_SECONDS, lost)
        print(f"    {(times + 1) // 2} notifications were not sent; {loads.connections_cut} connections were cut else")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    return 0 if is_good else 1


def _told(what: str, found: float, most: float, seconds: Sequence[float]) -> bool:
    mark = "ok " if found <= most else "BAD"
    spread = f"{median(seconds):.2f} s (median), {max(seconds):.2f} s (longest of {len(seconds)})"
    print(f"{mark} {what}: {found:.2f} s, {most:g} s allowed; {spread}", flush=True)
    return found <= most


if __name__ == "__main__":
    sys.exit(main())
