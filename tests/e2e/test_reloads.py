"""Workers and instances are replaced under load, and nobody who keeps a connection notices."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, get, logged_ids, register, sql

PER_SECOND = 120.0
KEEP_ALIVE = 16
ENOUGH_SECONDS = 60.0
MAX_LOAD_SECONDS = 120.0


async def a_proxy(stack: Stack, database_url: str, model_port: int, **options: Any) -> int:
    version = await register(database_url, 1, [model_port])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    return await asyncio.to_thread(lambda: stack.start_proxy(**options))


async def until(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + ENOUGH_SECONDS
    while not holds():
        assert time.monotonic() < give_up, what
        await asyncio.sleep(0.05)


@asynccontextmanager
async def loaded(port: int | Callable[[], int]) -> AsyncIterator[Load]:
    """Keep callers busy, and begin when they are."""
    load = Load()
    running = asyncio.create_task(
        run_load(
            port,
            VISITS,
            lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)],
            per_second=PER_SECOND,
            seconds=MAX_LOAD_SECONDS,
            connections=KEEP_ALIVE,
            load=load,
        )
    )
    try:
        await until(lambda: len(load.answers) > 2 * KEEP_ALIVE, "nobody is answered")
        yield load
        answered = len(load.answers)
        await until(lambda: len(load.answers) > answered + 2 * KEEP_ALIVE, "nobody is answered any more")
    finally:
        load.is_over = True
        await running


async def nothing_is_lost(load: Load, database_url: str) -> None:
    assert Counter(answer.status for answer in load.answers) == {200: len(load.answers)}
    logged = Counter(await logged_ids(database_url, set(load.prediction_ids())))
    assert set(load.prediction_ids()) <= set(logged)
    assert max(logged.values()) == 1


def staying(stack: Stack, known: list[int]) -> list[int]:
    return [pid for pid in stack.processes["proxy"].children() if pid in known]


async def until_gone(stack: Stack, known: list[int]) -> None:
    await until(lambda: not staying(stack, known), "workers that were told to stop go on")


async def test_a_reload_and_a_worker_that_is_told_to_stop_cost_no_call_and_no_row(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    with a_stack(tmp_path, database_url) as stack:
        port = await a_proxy(stack, database_url, model_port("visits:1"), workers=2)
        proxy = stack.processes["proxy"]
        await until(lambda: len(proxy.children()) == 2, "there are no two workers")
        async with loaded(port) as load:
            for _ in range(2):
                old = proxy.children()
                proxy.signal(signal.SIGHUP)
                await until_gone(stack, old)
            for _ in range(2):
                leaving = proxy.children()[0]
                os.kill(leaving, signal.SIGTERM)
                await until_gone(stack, [leaving])
            await until(lambda: len(proxy.children()) == 2, "workers are missing, or too many")

        await nothing_is_lost(load, database_url)


async def test_a_reload_whose_workers_cannot_start_leaves_those_that_serve(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    with a_stack(tmp_path, database_url) as stack:
        port = await a_proxy(stack, database_url, model_port("visits:1"), workers=2, state_dir=tmp_path / "state")
        proxy = stack.processes["proxy"]
        await until(lambda: len(proxy.children()) == 2, "there are no two workers")
        spool = tmp_path / "state" / "spool"
        await until(lambda: len(list(spool.iterdir())) == 2, "there are no two workers that have a spool")
        old = proxy.children()
        spool.rename(tmp_path / "moved")
        spool.write_bytes(b"")  # where no folder can be made

        proxy.signal(signal.SIGHUP)
        await until(lambda: "The others go on" in proxy.log.read_text(), "nobody says that the reload failed")

        spool.unlink()
        (tmp_path / "moved").rename(spool)
        assert staying(stack, old) == old
        assert proxy.child.poll() is None
        assert get(f"http://127.0.0.1:{port}/readyz")[0] == 200


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_proxy_without_callers_ends_soon(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int], workers: int
):
    with a_stack(tmp_path, database_url) as stack:
        await a_proxy(stack, database_url, model_port("visits:1"), workers=workers, drain_seconds=60)
        proxy = stack.processes["proxy"]

        proxy.signal(signal.SIGTERM)

        await asyncio.to_thread(proxy.child.wait, ENOUGH_SECONDS)
