"""The lake's object store is away for ten minutes, by the clock. ``make rig-lake-away``.

Arguments: ``--minutes`` (10), ``--rows-per-second`` (200, of each spool), ``--interval`` (60) seconds that rows gather.
A real S3 server behind a proxy that answers nothing meanwhile, a real Postgres, and two spools into which rows come
steadily, each with both shippers and the lake's own pauses: one with a proxy's usual limit, and one with so little room
that it is full long before the store is back. Printed is how much waits, minute by minute, and how soon all that waited
is in stored files; at the end each promised id is counted in the table and in Postgres. Most of the time it sleeps.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import asyncpg
from loopback.bad_store import BadStore, a_bad_store
from loopback.s3 import LOGIN, an_s3_server, make_bucket
from traffic.spooled_rows import a_row
from worlds.lake import A_VERSION, Lake, log_shipper

from understudy.adapters.disk.spool import Spool
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.migrations import upgrade
from understudy.shipping.shared_spool import SharedSpool

FILE_BYTES = 16 * 1_048_576
SEGMENT_BYTES = 1 << 20
LIMITS = {"roomy": 256 << 20, "tight": 8 << 20}
"""Bytes that may wait: of a proxy by default, and of one that is full after some minutes."""
STEP_SECONDS = 0.05
WELL_SECONDS = 75.0
"""Before the store goes: the first file is written after an interval."""
GIVE_UP_SECONDS = 600.0


class Worker:
    """One spool with its two shippers, and what was promised of its rows."""

    def __init__(self, lake: Lake, name: str, interval_seconds: float) -> None:
        self.name = name
        self.folder = lake.folder / f"spool-{name}"
        self.spool = Spool(self.folder, limit_bytes=LIMITS[name], segment_bytes=SEGMENT_BYTES, sync_seconds=1.0)
        self.shared = SharedSpool(self.spool, 2)
        self.to_lake = lake.lake_shipper(
            self.shared.shelf_of(0), interval_seconds=interval_seconds, file_bytes=FILE_BYTES, look_seconds=1.0
        )
        self.promised: list[str] = []
        self.lost = 0
        self.most_bytes = 0
        self.caught_up_seconds: float | None = None
        self._debt = 0
        """Bytes that waited for the lake when the store came back, and all that came before them."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are not in a stored file."""
        return self.shared.shelf_of(0).own.unshipped_bytes

    def append(self, first: int, count: int) -> None:
        """Append rows, each of which is promised or lost."""
        for number in range(first, first + count):
            row = a_row(number)._replace(predicted_at=time.time())
            if self.spool.append(row):
                self.promised.append(row.prediction_id)
            else:
                self.lost += 1

    def look(self) -> None:
        """Remember the most that the disk had to hold."""
        self.most_bytes = max(self.most_bytes, sum(path.stat().st_size for path in self.folder.rglob("*.log")))

    def store_is_back(self) -> None:
        """From now on it is watched how soon all that waits is stored."""
        self._debt = self.spool.own.appended_bytes

    def is_caught_up(self) -> bool:
        """Whether all that waited when the store came back is in stored files."""
        return self.waiting_bytes <= self.spool.own.appended_bytes - self._debt


async def feed(workers: list[Worker], rows_per_second: float, first: int) -> None:
    """Append rows steadily, until cancelled."""
    began, appended = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rows_per_second) - appended
        for place, worker in enumerate(workers):
            worker.append(first + (appended * len(workers)) + place * due, due)
            worker.look()
        appended += due
        await asyncio.sleep(STEP_SECONDS)


async def told(workers: list[Worker], seconds: float, store: BadStore) -> None:
    """Wait, and say minute by minute how much waits."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(60.0, left))
        waiting = ", ".join(f"{one.name} {one.waiting_bytes / 1e6:.1f} MB, {one.lost:,} lost" for one in workers)
        print(f"  store {store.mood}, {until - time.monotonic():4.0f} s to go: {waiting}", flush=True)


async def catch_up(workers: list[Worker]) -> None:
    """Wait until all that waited is stored."""
    began = time.monotonic()
    for worker in workers:
        worker.store_is_back()
    while any(one.caught_up_seconds is None for one in workers) and time.monotonic() < began + GIVE_UP_SECONDS:
        await asyncio.sleep(0.1)
        for one in workers:
            if one.caught_up_seconds is None and one.is_caught_up():
                one.caught_up_seconds = time.monotonic() - began


async def play(lake: Lake, store: BadStore, workers: list[Worker], minutes: float, rows_per_second: float) -> None:
    """Have the store go and come back under load, and ship what is left."""
    async with (
        log_shipper(lake, workers[0].shared.shelf_of(1)) as first,
        log_shipper(lake, workers[1].shared.shelf_of(1)) as second,
    ):
        runs = (first.run(), second.run(), *(one.to_lake.run() for one in workers))
        shipping = [asyncio.create_task(run) for run in runs]
        feeding = asyncio.create_task(feed(workers, rows_per_second, 1))
        await told(workers, WELL_SECONDS, store)
        store.mood = "away"
        await told(workers, minutes * 60, store)
        store.mood = "well"
        await catch_up(workers)
        for task in (feeding, *shipping):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.gather(first.drain(120), second.drain(120), *(one.to_lake.drain(120) for one in workers))
    await lake.commit()


async def measure(folder: Path, minutes: float, rows_per_second: float, interval_seconds: float) -> str:
    """Return the figures."""
    with EmbeddedPostgres(folder / "pg") as server, an_s3_server(folder) as s3, a_bad_store(s3) as store:
        await upgrade(server.url)
        database = await asyncpg.connect(server.url)
        await database.fetchval(A_VERSION, "visits", "1")
        make_bucket(s3, "lake")
        lake = Lake(server.url, folder, "s3://lake/understudy", store.url)
        workers = [Worker(lake, name, interval_seconds) for name in LIMITS]
        await play(lake, store, workers, minutes, rows_per_second)
        promised = Counter(row for one in workers for row in one.promised)
        in_lake = lake.ids()
        logged = Counter(str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog"))
        files = await database.fetchval("SELECT count(*) FROM LakeFile")
        database.terminate()
        for worker in workers:
            worker.spool.close()
        lake.close()
    if max(promised.values()) > 1 or in_lake != promised or logged != promised:
        raise RuntimeError(f"{len(promised)} rows promised, {len(in_lake)} in the lake, {len(logged)} in Postgres")
    lines = [f"store away for {minutes:g} minutes at {rows_per_second:g} rows a second, load {os.getloadavg()[0]:.0f}"]
    for one in workers:
        if one.most_bytes > LIMITS[one.name] + SEGMENT_BYTES or one.caught_up_seconds is None:
            raise RuntimeError(f"{one.name}: {one.most_bytes} bytes at most, caught up: {one.caught_up_seconds}")
        lines.append(
            f"{one.name:6} limit {LIMITS[one.name] / 1e6:5.1f} MB: {one.most_bytes / 1e6:5.1f} MB on disk at most, "
            f"{len(one.promised):,} rows taken, {one.lost:,} refused; caught up {one.caught_up_seconds:.1f} s after"
        )
    return "\n".join([*lines, f"every row that was taken is once in the lake and once in Postgres; {files} files"])


def main() -> None:
    """Play it, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rows-per-second", type=float, default=200)
    parser.add_argument("--interval", type=float, default=60)
    given = parser.parse_args()
    os.environ.update(LOGIN)
    folder = Path(tempfile.mkdtemp(prefix="us-lake-away-"))
    folder.chmod(0o755)
    try:
        print(asyncio.run(measure(folder, given.minutes, given.rows_per_second, given.interval)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
