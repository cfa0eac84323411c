"""What a proxy on core 0 notices of a console at full tilt on core 1. ``make bench-console-beside``.

Rounds take turns: with a console that rests, and with one at which 20 reports are asked for at once, again and again.
Callers come 200 times a second without waiting for each other. Callers and model servers have machines of their own
elsewhere; here they share core 1 with Postgres, the console and who asks it, which give way: what those take of that
core is no matter of the proxy. Reported: the median of the proxy's processor time a request, and of its p99, of pairs
of rounds.

Exit status 0: measured and within both bounds; 1: beyond one, or an answer was not as it should be; 2: cannot run here.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import asyncpg
import orjson
from e2e.stack import Stack, a_stack
from worlds.report import reported_world

from loadtests.beside import add_model, asked_for, take_turns
from loadtests.console import answering, started
from loadtests.console_tilt import KEY
from loadtests.machine import (
    LOAD_CORE,
    SERVER_CORE,
    a_folder,
    giving_way,
    on_core,
)
from loadtests.scene import start_stub
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor
from understudy.registry.changes import create_key

TESTS = 18
PAGES = ("/models/churn/drift", "/models/churn/shadow")
"""With a page of each of the :data:`TESTS`, 20 different reports: viewers of the same one would share it."""
ENTITIES = 10_000
"""Whose calls a report reads."""
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


class Scene(NamedTuple):
    """What is measured."""

    stack: Stack
    origin: str
    """Of the console."""
    key: str
    paths: tuple[str, ...]
    """Of its reports."""


@contextmanager
def tilting(at: Scene) -> Iterator[dict[str, int]]:
    """Have the console at full tilt while the context is open; yields how often each status came, in the end."""
    answered: dict[str, int] = {}
    asking = subprocess.Popen(
        [sys.executable, "-m", "loadtests.console_tilt", at.origin, *at.paths],
        env={**os.environ, KEY: at.key},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with giving_way(asking.pid):
            yield answered
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
        await add_model(database, port)
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


def main() -> int:
    """Run the benchmark and return the exit status."""
    given = asked_for(__doc__)
    if given is None:
        return 2
    with on_core(LOAD_CORE), a_folder("us-beside-") as folder, scene(folder) as at:
        return take_turns(at.stack, partial(tilting, at), rounds=given.rounds, seconds=given.seconds)


if __name__ == "__main__":
    sys.exit(main())
