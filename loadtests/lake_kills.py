"""Millions of rows into the lake while its processes and Postgres are killed. ``make rig-lake ROWS=10000000``.

Arguments: ``--rows`` (600,000), ``--kills`` (20), ``--workers`` (2), ``--keep FOLDER`` to keep the table for other
engines. Workers append rows in blocks and ship them to the lake alone; a committer commits, merges and deletes. Each
kill is a ``kill -9`` of one of them, or of Postgres, at a random moment. In the end each promised id has to be in the
table once, counted by Arrow over pyiceberg's scan in one process and by DuckDB over the table's files in another one.
"""

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import structlog
from integration.prediction_log.log_worker import Silent
from traffic.spooled_rows import a_prediction_id, a_row, new_windows, no_threshold
from worlds.lake import A_VERSION, Lake

from understudy.adapters.disk.spool import Spool
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.lake.parquet_rows import ParquetRows
from understudy.adapters.migrations import upgrade
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.errors import UnderstudyError
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.log_shipper import LogShipper
from understudy.shipping.shared_spool import SharedSpool

BLOCK = 1_000
HOUR_SECONDS = 3_600.0
_GONE = (UnderstudyError, OSError, asyncpg.PostgresError)


async def work(folder: Path, dsn: str, name: str, first: int, rows: int) -> None:
    """Append blocks of rows as fast as the spool takes them, print each block's last number, and ship."""
    lake = Lake(dsn, folder)
    spool = Spool(folder / f"spool-{name}", limit_bytes=1 << 27, segment_bytes=8 << 20, sync_seconds=1.0)
    shared = SharedSpool(spool, 2)
    store = PostgresPredictionStore(dsn, timeout_seconds=10, is_sample_alone=True)
    shippers: tuple[LakeShipper | LogShipper, ...] = (
        LakeShipper(
            shared.shelf_of(0), lake.ledger, lake.store, partial(ParquetRows, folder / "files" / spool.own.spool_id),
            Silent(), interval_seconds=1.0, file_bytes=4 << 20,
        ),
        LogShipper(
            shared.shelf_of(1), store, new_windows, no_threshold, Silent(), batch_rows=2_000, interval_seconds=0.1
        ),
    )  # fmt: skip
    running = [asyncio.create_task(one.run()) for one in shippers]
    made = first
    while made < first + rows:
        # Two hours ago, so that what is committed is merged at once.
        at = time.time() - 2 * HOUR_SECONDS
        block = [a_row(made + n)._replace(predicted_at=at + n / 1e4, entity_id=f"user-{n % 97}") for n in range(BLOCK)]
        if spool.append_all(block):
            raise RuntimeError("the spool took a part of a block: its ids are not known")
        made += BLOCK
        print(made, flush=True)
        while spool.own.unshipped_bytes > 1 << 26:  # noqa: ASYNC110 - a spool has no event of room
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
    while any(shared.shelf_of(place).own.unshipped_bytes for place in (0, 1)):  # noqa: ASYNC110 - nor of an end
        await asyncio.sleep(0.2)
    for task in running:
        task.cancel()


async def commit(folder: Path, dsn: str) -> None:
    """Commit, merge and delete again and again."""
    job = Lake(dsn, folder).job(over_seconds=0, snapshot_seconds=20)
    while True:
        with suppress(*_GONE, AssertionError):
            epoch = await Lake(dsn, folder).epoch()
            while True:
                await job.run(epoch)
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)


def count(folder: Path, dsn: str, engine: str) -> dict[str, Any]:
    """Count rows, distinct ids and a sum over the ids, by one engine."""
    lake = Lake(dsn, folder)
    table = lake.table().load()
    if engine == "arrow":
        rows, counted = 0, list[Any]()
        for batch in table.scan(selected_fields=("prediction_id",)).to_arrow_batch_reader():
            rows += batch.num_rows
            counted.append(batch.column(0))
        ids = pa.chunked_array(counted)
        groups = pc.value_counts(ids)
        lengths = pc.sum(pc.max(groups.field("counts"))).as_py()
        return {"rows": rows, "ids": len(groups), "most": lengths}
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    found = duckdb.connect().execute(
        "SELECT sum(n)::BIGINT, count(*), max(n) FROM"
        " (SELECT count(*) AS n FROM read_parquet($1) GROUP BY prediction_id)", [files]
    ).fetchone()  # fmt: skip
    assert found is not None
    return {"rows": found[0], "ids": found[1], "most": found[2], "files": len(files)}


class Rig:
    """The processes of one run."""

    def __init__(self, folder: Path, dsn: str, rows: int, workers: int) -> None:
        self._folder, self._dsn = folder, dsn
        self._rows = {f"w{number}": rows // workers for number in range(workers)}
        self._first = {name: (number + 1) * 10**12 for number, name in enumerate(self._rows)}
        self.made = dict.fromkeys(self._rows, 0)
        self._promised: dict[str, list[tuple[int, int]]] = {name: [] for name in self._rows}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0

    def start(self, name: str) -> None:
        """Start a process; a worker goes on with numbers that none had before."""
        self._starts += 1
        what = ["commit"]
        if name in self._rows:
            first = self._first[name] + self._starts * 10**9
            self._promised[name].append((self._starts, first))
            what = ["work", name, str(first), str(self._rows[name] - self.made[name])]
        out = (self._folder / f"out-{self._starts}").open("wb")
        err = (self._folder / f"err-{name}").open("ab")
        arguments = [sys.executable, "-m", "loadtests.lake_kills", "--in", str(self._folder), "--dsn", self._dsn, *what]
        self._running[name] = subprocess.Popen(arguments, stdout=out, stderr=err)
        out.close()
        err.close()

    def kill(self, name: str) -> None:
        """Kill a process, and learn how many rows it promised."""
        self._running[name].kill()
        self._running[name].wait(30)
        if name in self._rows:
            self.made[name] = sum(last - first for first, last in self.promised(name))

    def promised(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of numbers whose append returned; a line that a kill cut off is no promise."""
        ranges = []
        for start, first in self._promised[name]:
            text = (self._folder / f"out-{start}").read_text()
            lines = text[: text.rfind("\n") + 1].split()
            ranges.append((first, int(lines[-1]) if lines else first))
        return ranges

    def is_over(self, name: str) -> bool:
        """Return whether a process ended by itself."""
        ended = self._running[name].poll()
        if ended not in (None, 0):
            raise RuntimeError(f"{name} ended with {ended}: {(self._folder / f'err-{name}').read_text()[-2_000:]}")
        return ended == 0

    @property
    def names(self) -> list[str]:
        """The workers."""
        return list(self._rows)

    def is_done(self) -> bool:
        """Return whether every worker has made and shipped its rows."""
        return all(self.is_over(name) for name in self._rows)

    def progress(self) -> int:
        """Return how many rows were promised so far."""
        return sum(last - first for name in self._rows for first, last in self.promised(name))

    def stop(self) -> None:
        """Kill everything."""
        for process in self._running.values():
            process.kill()
            process.wait(30)


async def run(folder: Path, rows: int, kills: int, workers: int) -> str:
    """Make the rows, kill, count, and return the figures; raises where they are not right."""
    dice = random.Random()
    server = EmbeddedPostgres(folder / "pg")
    await asyncio.to_thread(server.start)
    await upgrade(server.url)
    database = await asyncpg.connect(server.url)
    await database.fetchval(A_VERSION, "visits", "1")
    await database.close()
    rig, began, done = Rig(folder, server.url, rows, workers), time.monotonic(), dict[str, int]()
    try:
        for name in (*rig.names, "committer"):
            rig.start(name)
        while not rig.is_done():
            wanted = sum(done.values()) + 1
            if wanted <= kills and rig.progress() >= rows * wanted / (kills + 1):
                await asyncio.sleep(dice.uniform(0, 1))
                live = [name for name in rig.names if not rig.is_over(name)]
                victim = dice.choice([*live, "committer", "committer", "postgres"])
                done[victim] = done.get(victim, 0) + 1
                if victim == "postgres":
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                else:
                    rig.kill(victim)
                    rig.start(victim)
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - began
        rig.kill("committer")
        await _commit_rest(Lake(server.url, folder), workers)
        counts = [_counted(folder, server.url, engine) for engine in ("arrow", "duckdb")]
        missing = _missing(rig, Lake(server.url, folder))
    finally:
        rig.stop()
        await asyncio.to_thread(server.stop)
    promised = rig.progress()
    text = json.dumps(
        {"promised": promised, "kills": done, "seconds": round(seconds), "counts": counts, "missing": missing}
    )
    arrow, duck = counts
    if (
        missing
        or arrow["most"] != 1
        or duck["most"] != 1
        or (arrow["rows"], arrow["ids"]) != (duck["rows"], duck["ids"])
    ):
        raise RuntimeError(text)
    return text


async def _commit_rest(lake: Lake, workers: int) -> None:
    """Ship what killed workers left in their spools, and commit it."""
    for number in range(workers):
        spool_folder = lake.folder / f"spool-w{number}"
        spool = Spool(spool_folder, limit_bytes=1 << 27, segment_bytes=8 << 20, sync_seconds=1.0)
        shelf = SharedSpool(spool, 1).shelf_of(0)
        shipper = lake.lake_shipper(shelf, file_bytes=4 << 20)
        await shipper.drain(600)
        task = asyncio.create_task(shipper.run())
        while sum(one.is_dir() for one in spool_folder.iterdir()) > 1:  # noqa: ASYNC110 - the shipper deletes them
            await asyncio.sleep(0.2)
        task.cancel()
        spool.close()
    await asyncio.sleep(11)  # the lease of the one that was killed
    await lake.commit(over_seconds=1e9)


def _counted(folder: Path, dsn: str, engine: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "loadtests.lake_kills", "--in", str(folder), "--dsn", dsn, "count", engine]
    counted: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return counted


def _missing(rig: Rig, lake: Lake) -> int:
    """Return how many promised ids are not in the table."""
    files = [task.file.file_path.removeprefix("file://") for task in lake.table().load().scan().plan_files()]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE found AS SELECT DISTINCT prediction_id FROM read_parquet($1)", [files])
    missing = 0
    for name in rig.names:
        for first, last in rig.promised(name):
            found = connection.execute(
                "SELECT count(*) FROM found WHERE prediction_id >= $1 AND prediction_id < $2",
                [a_prediction_id(first), a_prediction_id(last)],
            ).fetchone()
            assert found is not None
            missing += last - first - found[0]
    return missing


def main() -> None:
    """Run the rig, or one of its processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("--dsn")
    parser.add_argument("what", nargs="*")
    given = parser.parse_args()
    # Standard output is for the promises and the figures alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    match given.what:
        case ["work", name, first, rows]:
            asyncio.run(work(given.folder, given.dsn, name, int(first), int(rows)))
        case ["commit"]:
            asyncio.run(commit(given.folder, given.dsn))
        case ["count", engine]:
            print(json.dumps(count(given.folder, given.dsn, engine)))
        case _:
            folder = given.keep or Path(tempfile.mkdtemp(prefix="us-lake-kills-"))
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
            print(asyncio.run(run(folder, given.rows, given.kills, given.workers)))
            if given.keep is None:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
