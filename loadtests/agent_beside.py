"""What a proxy on core 0 notices of an agent on core 1 that loads a model of 500 MB. ``make bench-agent-beside``.

Rounds take turns: with an agent at rest, and with one that fetches, verifies, loads and unloads the model again and
again, with its model server, the monitor and Postgres. Callers come 200 times a second without waiting for each other;
they and their model server share core 0 with the proxy, as 500 MB that go to a disk hold up whoever is on core 1.
Reported: the median of the proxy's processor time a request, and of its p99, of pairs of rounds.

Exit status 0: measured and within both bounds; 1: beyond one, or an answer was not as it should be; 2: cannot run here.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import asyncpg
from e2e.lifecycle import Lifecycle
from e2e.stack import Stack, a_stack
from worlds.onnx_file import WIDTH, a_matrix_model

from loadtests.beside import add_model, asked_for, take_turns
from loadtests.machine import LOAD_CORE, SERVER_CORE, a_folder, on_core
from loadtests.scene import start_stub
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

SIZE_BYTES = 500_000_000
LARGE = "large"
LOOK_SECONDS = 0.1
GIVE_UP_SECONDS = 120.0
ACTOR = Actor("bench", "bench", "an agent is measured")
_STATE = """
    SELECT coalesce(max(state), '') FROM LoadedVersion JOIN ModelVersion ON id = model_version_id WHERE model_name = $1
"""


class Scene(NamedTuple):
    """What is measured."""

    stack: Stack
    url: str
    """Of the database."""


async def prepared(url: str, port: int) -> None:
    """Register the model that is called, and the large one, which nothing wants yet."""
    await upgrade(url)
    database = await asyncpg.connect(url)
    try:
        await add_model(database, port)
    finally:
        await database.close()
    schema = {
        "features": [{"name": "x", "dtype": "float32", "shape": [WIDTH]}],
        "tensors": [{"name": "x", "dtype": "float32", "shape": [WIDTH], "features": ["x"]}],
    }
    new = NewVersion(LARGE, "1", "large.onnx", "onnx", schema, {"tensor": "y"}, group_name="onnx")
    await register_version(PostgresRegistry(url), new, ACTOR)


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Start a stub model server and the proxy on a core, and Postgres, agent, its server and monitor on the other."""
    with ExitStack() as opened:
        with on_core(LOAD_CORE):
            postgres = opened.enter_context(EmbeddedPostgres(folder / "pg"))
        opened.callback(postgres.remove)
        stack = opened.enter_context(a_stack(folder, postgres.url))
        lifecycle = Lifecycle(stack)
        lifecycle.root.mkdir(parents=True, exist_ok=True)
        (lifecycle.root / "large.onnx").write_bytes(a_matrix_model(SIZE_BYTES))
        asyncio.run(prepared(postgres.url, start_stub(stack, "model", [])))
        stack.start_proxy()
        with on_core(LOAD_CORE):
            lifecycle.start_server()
            lifecycle.start_agent()
            lifecycle.start_monitor()
        yield Scene(stack, postgres.url)


@contextmanager
def loading(at: Scene) -> Iterator[dict[str, int]]:
    """Have the large model loaded and unloaded until the context ends; it is not loaded then."""
    done = {"loads": 0}
    over = Event()
    thread = Thread(target=lambda: asyncio.run(_load_again(at.url, over, done)))
    with on_core(LOAD_CORE):
        thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


async def _load_again(url: str, over: Event, done: dict[str, int]) -> None:
    registry = PostgresLoadingRegistry(url, timeout_seconds=5.0)
    database = await asyncpg.connect(url)
    until = partial(_until, database)
    try:
        while not over.is_set():
            await registry.load(LARGE, "1", ACTOR, group_name=None, seconds=None)
            await until("AVAILABLE")
            done["loads"] += 1
            await registry.unload(LARGE, "1", ACTOR)
            await until("END")
    finally:
        await database.close()


async def _until(database: asyncpg.Connection, state: str) -> None:
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while (found := await database.fetchval(_STATE, LARGE)) != state:
        if time.monotonic() > give_up:
            raise TimeoutError(f"the large model is {found or 'nowhere'}, not {state}, after {GIVE_UP_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)


def main() -> int:
    """Run the benchmark and return the exit status."""
    given = asked_for(__doc__)
    if given is None:
        return 2
    with on_core(SERVER_CORE), a_folder("us-beside-") as folder, scene(folder) as at:
        return take_turns(at.stack, partial(loading, at), rounds=given.rounds, seconds=given.seconds)


if __name__ == "__main__":
    sys.exit(main())
