"""What a proxy on core 0 notices of a console at full tilt on core 1. ``make bench-console-beside``.

Rounds take turns: with a console that rests, and with one at which 20 reports are asked for at once, again and again.
Callers come 200 times a second without waiting for each other. Callers and model servers have machines of their own
elsewhere; here they share core 1 with Postgres, the console and who asks it, which give way: what those take of that
core is no matter of the proxy. Reported: the median of the proxy's processor time a request, and of its p99, of pairs
of rounds.

Exit status 0: measured and within both bounds; 1: beyond one, or an answer was not as it should be; 2: cannot run here.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import asyncpg
import orjson
from e2e.stack import Stack, a_stack
from worlds.report import reported_world

from loadtests.console import answering, started
from loadtests.console_tilt import KEY
from loadtests.machine import (
    LOAD_CORE,
    SERVER_CORE,
    a_folder,
    cpu_seconds,
    giving_way,
    on_core,
    what_is_missing,
)
from loadtests.open_loop import HttpCaller, call_on_time, due_times
from loadtests.scene import start_stub
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key

PER_SECOND, TESTS = 200, 18
MAX_CPU_RATIO, MAX_P99_RATIO = 1.05, 1.2
PAGES = ("/models/churn/drift", "/models/churn/shadow")
"""With a page of each of the :data:`TESTS`, 20 different reports: viewers of the same one would share it."""
ENTITIES = 10_000
"""Whose calls a report reads."""
_MODEL = "beside"
_ADD_TEST = """
    INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric)
    VALUES ('churn', $1, $2, $3, 'converted') RETURNING id
"""
# A console keeps a report for a minute: asked for again and again, it would rest.
_KEEPS_NOTHING = """
import runpy, sys
from understudy.entrypoints.console.pages import reports
reports.KEPT_SECONDS = 0.0
sys.argv = ["understudy", "serve", "console"]
runpy.run_module("understudy.entrypoints.cli", run_name="__main__")
"""


class Round(NamedTuple):
    """One round of the proxy."""

    cpu_us: float
    p99_ms: float
    failed: int


class Scene(NamedTuple):
    """What is measured."""

    stack: Stack
    origin: str
    """Of the console."""
    key: str
    paths: tuple[str, ...]
    """Of its reports."""


@contextmanager
def tilting(at: Scene, answered: dict[str, int]) -> Iterator[None]:
    """Have the console at full tilt while the context is open; ``answered`` gets how often each status came."""
    asking = subprocess.Popen(
        [sys.executable, "-m", "loadtests.console_tilt", at.origin, *at.paths],
        env={**os.environ, KEY: at.key},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with giving_way(asking.pid):
            yield
    finally:
        said, _ = asking.communicate(timeout=90)
        answered.update(orjson.loads(said))


async def prepared(url: str, port: int) -> tuple[str, tuple[str, ...]]:
    """Fill the registry and the log, and return the key of who asks for reports, and where those are."""
    await upgrade(url)
    database = await asyncpg.connect(url)
    try:
        world = await reported_world(database, entities=ENTITIES)
        tests = [await database.fetchval(_ADD_TEST, str(one), *map(world.versions.get, "67")) for one in range(TESTS)]
        schema = orjson.dumps({"features": [{"name": "age", "dtype": "float32"}]}).decode()
        columns = "(model_name, version, artifact_path, framework, protocol, input_schema)"
        version = await database.fetchval(
            f"INSERT INTO ModelVersion {columns} VALUES ($1, '1', 'none', 'none', 'tfserving', $2) RETURNING id",
            _MODEL,
            schema,
        )
        target = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
        await database.execute(target, version, f"127.0.0.1:{port}")
        await database.execute(
            "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", _MODEL, version
        )
    finally:
        await database.close()
    made = await create_key(PostgresRegistry(url), ("read",), None, Actor("bench", "bench"))
    return made.credential, (*PAGES, *(f"/models/churn/experiments/{test}" for test in tests))


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Start Postgres, a stub model server, the proxy on its core, and the console on the other."""
    with ExitStack() as opened:
        postgres = opened.enter_context(EmbeddedPostgres(folder / "pg"))
        opened.callback(postgres.remove)
        stack = opened.enter_context(a_stack(folder, postgres.url))
        key, paths = asyncio.run(prepared(postgres.url, start_stub(stack, "model", [])))
        with on_core(SERVER_CORE):
            stack.start_proxy()
        port = free_port()
        console = started(postgres.url, port, ("-c", _KEEPS_NOTHING))
        opened.callback(console.wait, 20)
        opened.callback(console.terminate)
        origin = f"http://127.0.0.1:{port}"
        asyncio.run(answering(origin))
        for pid in filter(None, (console.pid, postgres.pid)):
            opened.enter_context(giving_way(pid))
        yield Scene(stack, origin, key, paths)


def a_round(stack: Stack, seconds: float, number: int) -> Round:
    """Call the proxy for some seconds."""
    pid = stack.processes["proxy"].pid
    body = orjson.dumps({"entity_id": "customer-42", "inputs": {"age": 41.0}})
    caller = HttpCaller(stack.proxy_port, f"/v1/models/{_MODEL}/predict", lambda _: body)
    before = cpu_seconds([pid])
    heard = call_on_time(caller, due_times(PER_SECOND, seconds, seed=number))
    used = cpu_seconds([pid]) - before
    return Round(1e6 * used / max(1, len(heard.seconds)), heard.latency.p99_ms, heard.failed)


def measure(at: Scene, given: argparse.Namespace) -> int:
    """Take turns, print the figures, and return the exit status."""
    a_round(at.stack, 1.0, 0)
    rests, tilts = [], []
    for number in range(1, given.rounds + 1):
        rests.append(a_round(at.stack, given.seconds, number))
        answered: dict[str, int] = {}
        with tilting(at, answered):
            tilts.append(a_round(at.stack, given.seconds, number))
        say(number, rests[-1], tilts[-1], answered)
    cpu = median(other.cpu_us / one.cpu_us for one, other in zip(rests, tilts, strict=True))
    p99 = median(other.p99_ms / one.p99_ms for one, other in zip(rests, tilts, strict=True))
    failed = sum(one.failed for one in (*rests, *tilts))
    print(f"processor time a request: {cpu:.3f} times (at most {MAX_CPU_RATIO:g})")
    print(f"p99: {p99:.2f} times (at most {MAX_P99_RATIO:g}); {failed} calls without a good answer")
    return 0 if cpu <= MAX_CPU_RATIO and p99 <= MAX_P99_RATIO and not failed else 1


def say(number: int, rest: Round, tilt: Round, answered: Mapping[str, int]) -> None:
    """Print the figures of a pair of rounds."""
    print(
        f"round {number}: {rest.cpu_us:.0f} and {tilt.cpu_us:.0f} µs a request, p99 {rest.p99_ms:.2f} and"
        f" {tilt.p99_ms:.2f} ms; reports {answered}",
        flush=True,
    )


def main() -> int:
    """Run the benchmark and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of rounds (9)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round (10)")
    given = parser.parse_args()
    problems = what_is_missing(())
    if problems:
        print("the benchmark needs", *problems, sep="\n  ", file=sys.stderr)
        return 2
    with on_core(LOAD_CORE), a_folder("us-beside-") as folder, scene(folder) as at:
        return measure(at, given)


if __name__ == "__main__":
    sys.exit(main())
