"""``make lifecycle-unloads``: a thousand unloads under load, while proxies stand still at random.

One model server with its agent, a monitor and three proxies. Versions are wanted and unwanted in turns, and callers
call each of them by its name all the while. The server writes down each request for a model that it does not have.

Exit status 0: no request reached a model that was unloaded, and no call of the champion failed; 1: not. In the end the
rig drops a model behind the agent's back, which must be written down: a rig that sees nothing proves nothing.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import asyncpg
from e2e.lifecycle import Lifecycle, until
from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, sql

from rigs.lifecycle.flips import Flips
from rigs.lifecycle.pauses import Pauses
from rigs.lifecycle.temporary_stack import a_stack
from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.served_name import served_name
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

PROXIES: Final = 3
LABELS: Final = tuple(str(number) for number in range(1, 63))
"""The first one is champion, and stays. Of the others there is a prime number, so that each is called as often."""
EXAMPLES: Final = 4
CALLS_PER_SECOND: Final = 300.0
CHAMPION_EVERY: Final = 4
"""Of so many calls one is of the champion; the others name a version."""
TIMEOUT_MS: Final = 4_000
LONGEST_SECONDS: Final = 7_200.0
TOLD_SECONDS: Final = 60.0
"""By then a model that was dropped behind the agent's back has been called."""
OK: Final = 200
NOT_LOADED: Final = 503
ACTOR: Final = Actor("rig", "cli", "it is loaded and unloaded")
_KEY = "authorization: Bearer operator.secret\r\n"
_AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"
_KEYS = "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('operator', $1, '{predict,operate}')"
_CHAMPION = """
    INSERT INTO ServingPolicy (model_name, champion_version, guard) SELECT 'visits', min(id), 'off' FROM ModelVersion
"""
_FIRST_LOADS_SECONDS = 240.0
"""Each version takes about a second to load."""
_IDS = "SELECT id FROM ModelVersion ORDER BY id"


class Answers(list[Answer]):
    """Counts answers by what was called and the status, and keeps those that may be failures."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, int]] = Counter()

    def append(self, answer: Answer) -> None:
        """Count an answer, and keep one of the champion that failed, or one by name that is neither."""
        what = "champion" if answer.number % CHAMPION_EVERY == 0 else "by name"
        self.counts[what, answer.status] += 1
        if answer.status not in ((OK,) if what == "champion" else (OK, NOT_LOADED)):
            super().append(answer)


class Found(NamedTuple):
    """What a run has come to."""

    counts: Counter[tuple[str, int]]
    """Answers by what was called and the status."""
    failed: Sequence[Answer]
    """Those that no pause explains."""
    reached: Sequence[str]
    """Requests for a model that was unloaded."""


def main() -> int:
    """Make the unloads that were asked for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make lifecycle-unloads")
    parser.add_argument("--unloads", type=int, default=1_000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of what is random (the time)")
    asked = parser.parse_args()
    with a_stack("unloads") as stack:
        return asyncio.run(_run(stack, asked.unloads, asked.seed or int(time.time())))


async def _run(stack: Stack, unloads: int, seed: int) -> int:
    print(f"{unloads} unloads, seed {seed}, load of the machine {os.getloadavg()[0]:.1f}", flush=True)
    chance, missed = Random(seed), stack.folder / "missed.txt"
    lifecycle = Lifecycle(stack)
    ports = await _start(stack, lifecycle, missed)
    ids = [int(row[0]) for row in await sql(stack.database_url, _IDS)]
    flips = Flips(ids[1:], unloads, chance)
    pauses = Pauses([stack.processes[f"proxy-{number}"] for number in range(PROXIES)], chance)
    loads = [Load(answers=Answers()) for _ in ports]
    began = time.monotonic()
    calling = [asyncio.create_task(_call(*one)) for one in zip(ports, loads, strict=True)]
    pausing = asyncio.create_task(pauses.run())
    connection = await asyncpg.connect(stack.database_url)
    try:
        await flips.run(connection)
        pausing.cancel()
        with suppress(asyncio.CancelledError):
            await pausing
        found = _found(loads, pauses, _lines(missed))
        sees = await _drop_behind_its_back(stack, lifecycle, missed)
    finally:
        pausing.cancel()
        for load in loads:
            load.is_over = True
        await asyncio.gather(*calling)
        await connection.close()
    print(f"{flips.unloaded.total()} unloads in {time.monotonic() - began:.0f} s, {pauses.count} pauses of a proxy")
    return _judge(found, sees=sees)


async def _start(stack: Stack, lifecycle: Lifecycle, missed: Path) -> Sequence[int]:
    """Start all of it with every version loaded and the first one as champion, and return the proxies' ports."""
    await migrations.upgrade(stack.database_url)
    lifecycle.start_server("--missed", str(missed), module="rigs.lifecycle.watched_server")
    lifecycle.start_monitor()
    lifecycle.start_agent()
    registry = PostgresRegistry(stack.database_url)
    for number, label in enumerate(LABELS):
        example = example_version("visits", number % EXAMPLES + 1)
        artifact = lifecycle.put_artifact(number % EXAMPLES + 1)
        new = NewVersion("visits", label, artifact, "sklearn", example.input_schema, example.output_schema)
        await register_version(registry, new._replace(group_name="onnx", timeout_ms=TIMEOUT_MS), ACTOR)
    await until(stack.database_url, _AVAILABLE, len(LABELS), _FIRST_LOADS_SECONDS)
    digest = sha256(b"secret").hexdigest()
    await sql(stack.database_url, _KEYS, digest)
    await sql(stack.database_url, _CHAMPION)
    return [_start_proxy(stack, f"proxy-{number}") for number in range(PROXIES)]


def _start_proxy(stack: Stack, name: str) -> int:
    return stack.start_proxy(name, state_dir=stack.folder / name, instance=name)


async def _call(port: int, load: Load) -> None:
    await run_load(
        port,
        _path_of,
        lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)],
        per_second=CALLS_PER_SECOND / PROXIES,
        seconds=LONGEST_SECONDS,
        connections=32,
        load=load,
        headers=_KEY,
    )


def _path_of(number: int) -> str:
    if number % CHAMPION_EVERY == 0:
        return VISITS
    label = LABELS[1 + number * 7 % (len(LABELS) - 1)]
    return VISITS.replace("/predict", f"/versions/{label}/predict")


def _lines(missed: Path) -> Sequence[str]:
    return missed.read_text().splitlines()


async def _drop_behind_its_back(stack: Stack, lifecycle: Lifecycle, missed: Path) -> bool:
    """Drop the champion at the server while its endpoint is there; return whether a call of it was written down."""
    lifecycle.kill(lifecycle.agent)  # it would load the model again
    before = len(_lines(missed))
    folder = RepositoryFolder(stack.folder / "nowhere", LAYOUTS["understudy"])
    control = RepositoryControl(f"127.0.0.1:{lifecycle.control_port}", folder, "understudy")
    await control.unload(served_name("visits", LABELS[0]))
    await control.close()
    give_up = time.monotonic() + TOLD_SECONDS
    while len(_lines(missed)) == before and time.monotonic() < give_up:
        await asyncio.sleep(0.1)
    return len(_lines(missed)) > before


def _found(loads: Sequence[Load], pauses: Pauses, reached: Sequence[str]) -> Found:
    counts: Counter[tuple[str, int]] = Counter()
    failed: list[Answer] = []
    for proxy, load in enumerate(loads):
        assert isinstance(load.answers, Answers)
        counts += load.answers.counts
        failed += [one for one in tuple(load.answers) if not pauses.explains(proxy, one.sent)]
    return Found(counts, failed, reached)


def _judge(found: Found, *, sees: bool) -> int:
    """Print what was found, and return the exit status."""
    for (what, status), count in sorted(found.counts.items()):
        print(f"{what:9s} {status:3d} {count:9,d}")
    print(
        f"{len(found.reached)} requests reached a model that was unloaded; {len(found.failed)} calls failed beside the"
        f" pauses; load of the machine {os.getloadavg()[0]:.1f}"
    )
    for line in [*found.reached[:10], *(f"status {one.status}: {one.body[:200]!r}" for one in found.failed[:10])]:
        print(f"  {line}")
    if not sees:
        print("a model that was dropped behind the agent's back was not noticed: the run proves nothing")
    return 1 if found.reached or found.failed or not sees else 0


if __name__ == "__main__":
    sys.exit(main())
