"""The promise of the prediction log: what was appended is in PredictionLog, once, whoever is killed meanwhile."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
from integration.prediction_log.log_worker import Silent
from traffic import chance
from traffic.clusters import put_new_cluster
from traffic.spooled_rows import new_windows, no_threshold

from understudy.adapters.disk.spool import Spool
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.shipping.log_shipper import LogShipper

TESTS = Path(__file__).parents[2]
WORKERS = 2
WORKER_KILLS = 5
POSTGRES_KILLS = 3
ROWS_OF_ONE_WORKER = 1_000_000
BEGUN_BYTES = 4_000
"""Of promises: about a hundred."""
PROMISED = 1_000


class Workers:
    """Processes that append and ship; each that is killed is replaced by one with ids of its own."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self._folder = folder
        self._dsn = dsn
        self._started = 0
        self._running: list[subprocess.Popen[bytes]] = []
        self._files: dict[int, tuple[Path, Path]] = {}

    def start(self) -> None:
        self._started += 1
        first = self._started * ROWS_OF_ONE_WORKER
        script = [sys.executable, str(TESTS / "integration" / "prediction_log" / "log_worker.py")]
        promises, shipped = (self._folder / f"{name}-{self._started}" for name in ("promised", "shipped"))
        arguments = [str(self._folder / "spool"), self._dsn, str(first), "0.001", str(shipped)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        with promises.open("wb") as promised:
            self._running.append(subprocess.Popen([*script, *arguments], stdout=promised, env=environment))
        self._files[self._running[-1].pid] = promises, shipped

    def kill_one(self) -> None:
        """Kill the oldest worker, in the middle of its work: one that has not shipped yet would prove nothing."""
        victim = self._running.pop(0)
        promises, shipped = self._files[victim.pid]
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and (promises.stat().st_size < BEGUN_BYTES or not shipped.exists()):
            assert victim.poll() is None, "a worker ended by itself"
            time.sleep(0.02)
        victim.kill()
        victim.wait(10)

    def kill_all(self) -> None:
        while self._running:
            self.kill_one()

    def go_on_until_enough_is_promised(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(self.promised()) <= PROMISED:
            time.sleep(0.1)

    def promised(self) -> list[str]:
        """Return the ids whose append returned; a line that a kill cut off is no promise."""
        texts = [path.read_text() for path in self._folder.glob("promised-*")]
        return [line for text in texts for line in text[: text.rfind("\n") + 1].splitlines()]


@contextmanager
def running(folder: Path, dsn: str) -> Iterator[Workers]:
    workers = Workers(folder, dsn)
    try:
        for _ in range(WORKERS):
            workers.start()
        yield workers
    finally:
        for process in workers._running:  # noqa: SLF001 - whatever happened, no process outlives the test
            process.kill()
            process.wait(10)


async def kill_workers(workers: Workers, dice: random.Random) -> None:
    for _ in range(WORKER_KILLS):
        await asyncio.sleep(dice.uniform(0.7, 1.6))
        await asyncio.to_thread(workers.kill_one)
        workers.start()
    await asyncio.to_thread(workers.go_on_until_enough_is_promised)
    await asyncio.sleep(1.0)


async def kill_postgres(server: EmbeddedPostgres, dice: random.Random) -> None:
    for _ in range(POSTGRES_KILLS):
        await asyncio.sleep(dice.uniform(1.0, 2.0))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)


async def ship_what_is_left(folder: Path, dsn: str) -> None:
    spool = Spool(folder / "spool", limit_bytes=1 << 26, segment_bytes=20_000, sync_seconds=1.0)
    store = PostgresPredictionStore(dsn, timeout_seconds=5.0)
    shipper = LogShipper(
        spool, store, new_windows, no_threshold, Silent(), batch_rows=500, interval_seconds=0.01, orphan_seconds=0.01
    )
    shipping = asyncio.create_task(shipper.run())
    try:
        async with asyncio.timeout(60):
            while spool.own.unshipped_bytes or len(list((folder / "spool").iterdir())) > 1:
                assert not shipping.done(), shipping.exception()
                await asyncio.sleep(0.05)
    finally:
        shipping.cancel()
        await asyncio.gather(shipping, return_exceptions=True)
        await store.close()
        spool.close()


async def test_every_row_is_in_the_log_once_although_workers_and_postgres_are_killed(short_path):
    seed = chance.seed()
    dice = random.Random(seed)
    put_new_cluster(short_path / "pg")
    with EmbeddedPostgres(short_path / "pg", parameters={"fsync": "off"}) as server:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url, timeout=10)
        await database.execute(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}')"
        )
        database.terminate()

        with running(short_path, server.url) as workers:
            await asyncio.gather(kill_workers(workers, dice), kill_postgres(server, dice))
            workers.kill_all()
            promised = workers.promised()
        await ship_what_is_left(short_path, server.url)

        database = await asyncpg.connect(server.url, timeout=10)
        logged = Counter(str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog"))
        refused = Counter(
            row[0].split(b"\t")[0].decode() for row in await database.fetch('SELECT "row" FROM PredictionDeadLetter')
        )
        added_up = await database.fetchrow(
            "SELECT sum(calls)::bigint, sum((counts ->> 'volume')::bigint)::bigint, count(DISTINCT shipper) AS shippers"
            " FROM PredictionWindow"
        )
        database.terminate()

    found = logged + refused
    poison = {prediction_id for prediction_id in promised if int(prediction_id.replace("-", ""), 16) % 50 == 0}
    assert len(promised) > PROMISED, seed
    assert added_up is not None
    assert added_up[:2] == (logged.total(), logged.total()), seed
    assert added_up[2] > WORKER_KILLS, seed
    wrong = {one: found[one] for one in promised if found[one] != 1}
    assert wrong == {}, seed
    assert [prediction_id for prediction_id, times in found.items() if times > 1] == [], seed
    assert len(found) - len(promised) <= WORKER_KILLS + WORKERS, "only the row of a cut-off line may be unpromised"
    assert poison <= set(refused), seed
    assert len(set(refused) - poison) <= WORKER_KILLS + WORKERS, seed
