"""Two proxies move their log from Postgres to the lake and back, one after the other, while callers go on calling."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e.load import Answer, Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, register, sql
from worlds.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MODES = ("postgres", "postgres+lake", "lake", "postgres+lake", "postgres")
NAMES = ("one", "other")
PER_SECOND = 80.0
ENOUGH = 150
"""Answers of each setting, once both proxies have it."""
SECONDS = 120.0


class Proxies:
    """Two proxies, each with a state folder that its next process finds."""

    def __init__(self, stack: Stack, lake: Lake) -> None:
        self._stack = stack
        self._lake = lake
        self._serving: dict[str, int] = {}
        self._calls = 0

    def port(self) -> int:
        """Return where the next connection goes: to both in turns."""
        self._calls += 1
        ports = list(self._serving.values())
        return ports[self._calls % len(ports)]

    async def start(self, name: str, mode: str) -> None:
        place: dict[str, Any] = (
            {} if mode == "postgres" else {"lake_url": self._lake.place, "lake_interval_seconds": 0.5}
        )
        self._serving[name] = await asyncio.to_thread(
            lambda: self._stack.start_proxy(
                name, log=mode, state_dir=self._stack.folder / name, drain_seconds=60, **place
            )
        )

    async def end(self, name: str, number: int) -> None:
        """End a proxy by a signal; new connections go to the other one before."""
        del self._serving[name]
        process = self._stack.processes[name]
        process.signal(number)
        await asyncio.to_thread(process.child.wait, SECONDS)


@asynccontextmanager
async def calling(port: Callable[[], int]) -> AsyncIterator[Load]:
    """Keep callers busy until the block is over."""
    load = Load()
    running = asyncio.create_task(
        run_load(
            port, VISITS, lambda number: PREDICT_BODIES[number % len(PREDICT_BODIES)], per_second=PER_SECOND,
            seconds=800, load=load,
        )
    )  # fmt: skip
    try:
        yield load
    finally:
        load.is_over = True
        await running


async def answered(load: Load) -> list[Answer]:
    """Return the next answers to calls that are sent from now on."""
    now, give_up = time.monotonic(), time.monotonic() + SECONDS
    while len(found := [one for one in load.answers if one.sent > now and one.status == 200]) < ENOUGH:
        assert time.monotonic() < give_up, f"{len(found)} answers"
        await asyncio.sleep(0.05)
    return found


def ids_of(answers: list[Answer]) -> set[str]:
    return set(Load(answers).prediction_ids())


async def test_a_log_that_moves_to_the_lake_and_back_under_load_has_each_answered_id_once(
    database, database_url: str, tmp_path: Path, model_port: Callable[[str], int]
):
    version = await register(database_url, 1, [model_port("visits:1")])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    lake = Lake(database_url, tmp_path)
    settled: list[tuple[str, set[str]]] = []
    with a_stack(tmp_path, database_url) as stack:
        proxies = Proxies(stack, lake)
        for name in NAMES:
            await proxies.start(name, MODES[0])
        async with calling(proxies.port) as load:
            settled.append((MODES[0], ids_of(await answered(load))))
            for mode in MODES[1:]:
                for name in NAMES:
                    await proxies.end(name, signal.SIGTERM)
                    await proxies.start(name, mode)
                settled.append((mode, ids_of(await answered(load))))
                await lake.commit(over_seconds=1e9)
                if mode == "lake":
                    await proxies.end("other", signal.SIGKILL)
                    await proxies.start("other", mode)
        for name in NAMES:
            await proxies.end(name, signal.SIGTERM)
    await lake.commit()

    in_lake = lake.ids()
    in_postgres = Counter(str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog"))
    logged, promised = set(in_lake) | set(in_postgres), set(load.prediction_ids())
    print(f"{len(load.answers)} calls, {Counter(one.status for one in load.answers)}, {len(logged)} rows")
    assert (max(in_lake.values()), max(in_postgres.values())) == (1, 1)
    assert promised <= logged
    # A call that a killed proxy logged and did not answer any more is there as well.
    assert len(logged - promised) <= len(load.failed) <= 16
    places = [(mode, len(ids & set(in_lake)), len(ids & set(in_postgres)), len(ids)) for mode, ids in settled]
    print(places)
    # What a spool still holds when a lake comes goes there, too; so the calls before may be in both.
    assert all(lake == every for mode, lake, _, every in places if "lake" in mode), places
    assert all(postgres == (0 if mode == "lake" else every) for mode, _, postgres, every in places), places
    assert places[-1][1] == 0, places
    volume = await database.fetchval("SELECT sum((counts ->> 'volume')::bigint) FROM PredictionWindow")
    assert volume == len(logged), "windows count every row, wherever it is"
    lake.close()
