"""A lake beside a real Postgres: a spool on the disk, both shippers, the job that commits, and two ways to count."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from integration.prediction_log.log_worker import Silent
from pyarrow import parquet
from pyiceberg.io.pyarrow import pyarrow_to_schema
from traffic.spooled_rows import a_row, new_windows, no_threshold

from understudy.adapters.archive.open import open_archive
from understudy.adapters.archive.run_folder import run_folder
from understudy.adapters.disk.spool import Spool
from understudy.adapters.lake.iceberg_table import IcebergTable
from understudy.adapters.lake.parquet_rows import ParquetRows
from understudy.adapters.lake.rewriting import IcebergRewrites
from understudy.adapters.postgres.monitoring.lake_commits import PostgresLakeCommits
from understudy.adapters.postgres.monitoring.lake_rewrites import PostgresLakeRewrites
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.prediction_log.lake_ledger import PostgresLakeLedger
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row import PredictionRow
from understudy.monitoring.lake_job import LakeJob
from understudy.monitoring.lake_upkeep import LakeUpkeep
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.log_shipper import LogShipper
from understudy.shipping.shared_spool import SharedSpool

SECONDS = 10.0
A_VERSION = (
    "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
    " VALUES ($1, $2, 's3://models/1', 'sklearn', '{}') RETURNING id"
)
VERSION = A_VERSION.replace("$1", "'visits'").replace("$2", "'1'")


class Fault(Exception):
    """A process that dies at this call."""


class Dying:
    """Stands in front of a part and dies at one of its calls, before it or after it."""

    def __init__(self, part: object, calls: "Calls") -> None:
        self._part = part
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found) or name == "clear":
            return found
        if asyncio.iscoroutinefunction(found):

            async def later(*args: Any, **named: Any) -> Any:
                self._calls.before(name)
                result = await found(*args, **named)
                self._calls.after()
                return result

            return later

        def now(*args: Any, **named: Any) -> Any:
            self._calls.before(name)
            result = found(*args, **named)
            self._calls.after()
            return result

        return now


class Calls:
    """Counts the calls of all parts, and lets one of them die; ``2 n`` is before the n-th, ``2 n + 1`` after it."""

    def __init__(self, dies_at: int = -1) -> None:
        self.names: list[str] = []
        self._dies_at = dies_at

    def before(self, name: str) -> None:
        self.names.append(name)
        if self._dies_at == 2 * (len(self.names) - 1):
            raise Fault(name)

    def after(self) -> None:
        if self._dies_at == 2 * (len(self.names) - 1) + 1:
            raise Fault(self.names[-1])


class Lake:
    """One installation; its parts can be opened again and again, as processes that follow each other do."""

    def __init__(self, url: str, folder: Path, place: str | None = None, endpoint: str | None = None) -> None:
        self.url = url
        self.folder = folder
        self.place = place or str(folder / "lake")
        self.endpoint = endpoint
        self.store = open_archive(self.place, endpoint=endpoint, timeout_seconds=SECONDS)
        root = self.store.local_root
        location = self.store.location if root is None else f"file://{root}"
        self._tables: list[IcebergTable] = []
        self.location = location
        self.commits = PostgresLakeCommits(url, timeout_seconds=SECONDS)
        self.rewrites = PostgresLakeRewrites(url, timeout_seconds=SECONDS)
        self.ledger = PostgresLakeLedger(url, timeout_seconds=SECONDS)

    def table(self) -> IcebergTable:
        self._tables.append(IcebergTable(self.url, self.location, endpoint=self.endpoint, timeout_seconds=SECONDS))
        return self._tables[-1]

    def spool(self, segment_bytes: int = 20_000) -> Spool:
        return Spool(self.folder / "spool", limit_bytes=1 << 26, segment_bytes=segment_bytes, sync_seconds=SECONDS)

    def lake_shipper(self, shelf: Any, calls: Calls | None = None, **changes: Any) -> LakeShipper:
        def dying(part: object) -> Any:
            return part if calls is None else Dying(part, calls)

        def new_files() -> Any:
            return dying(ParquetRows(self.folder / "files"))

        wanted: dict[str, Any] = {"interval_seconds": 0.01, "file_bytes": 1 << 20} | changes
        return LakeShipper(shelf, dying(self.ledger), dying(self.store), new_files, Silent(), **wanted)

    def job(self, calls: Calls | None = None, **changes: Any) -> LakeJob:
        table = self.table()
        parts: list[Any] = [self.commits, table, self.store, self.rewrites, IcebergRewrites(table)]
        if calls is not None:
            parts = [Dying(part, calls) for part in parts]
        commits, table, store, rewrites, rewritten = parts
        upkeep = LakeUpkeep(
            rewrites, rewritten, store, partial(run_folder, "understudy-lake-test-"), Silent(),
            **{"days": None, "now": time.monotonic} | changes,
        )  # fmt: skip
        return LakeJob(commits, table, store, upkeep, Silent(), now=time.monotonic)

    async def ship(self, shelf: Any, calls: Calls | None = None, **changes: Any) -> None:
        await self.lake_shipper(shelf, calls, **changes).drain(60)

    async def epoch(self) -> int:
        lease = PostgresLease(self.url, timeout_seconds=SECONDS)
        epoch = await lease.take_or_renew("a monitor")
        await lease.close()
        assert epoch is not None
        return epoch

    async def commit(self, calls: Calls | None = None, **changes: Any) -> None:
        await self.job(calls, **changes).run(await self.epoch())

    def rows(self) -> Any:
        return self.table().load().scan().to_arrow()

    def ids(self) -> Counter[str]:
        """Count the rows of each id, by pyiceberg's own scan and by DuckDB over the table's files."""
        table = self.table().load()
        scanned = Counter(table.scan().to_arrow()["prediction_id"].to_pylist())
        files = [task.file.file_path for task in table.scan().plan_files()]
        if self.store.local_root is not None and files:
            paths = [path.removeprefix("file://") for path in files]
            found = duckdb.connect().execute(
                "SELECT prediction_id, count(*) FROM read_parquet($1) GROUP BY ALL", [paths]
            )
            assert Counter(dict(found.fetchall())) == scanned
        return scanned

    def close(self) -> None:
        for table in self._tables:
            table.close()


@asynccontextmanager
async def log_shipper(lake: Lake, shelf: Any) -> AsyncIterator[LogShipper]:
    store = PostgresPredictionStore(lake.url, timeout_seconds=SECONDS)
    try:
        yield LogShipper(shelf, store, new_windows, no_threshold, Silent(), batch_rows=500, interval_seconds=0.01)
    finally:
        await store.close()


async def ship_files(lake: Lake, version: int, numbers: Iterable[int], *, ago: float = 10_800.0, rows: int = 3) -> None:
    """Store and commit a file for each number, with so many rows, all of one hour."""
    spool = lake.spool()
    shelf = SharedSpool(spool, 1).shelf_of(0)
    for number in numbers:
        at = time.time() - ago
        at -= at % 3_600 - number
        made = some_rows(range(number * rows, (number + 1) * rows), version, lambda _n: {})
        spool.append_all([row._replace(predicted_at=at) for row in made])
        await lake.ship(shelf)
    spool.close()
    await lake.commit(over_seconds=1e9)


def files_of(lake: Lake) -> list[str]:
    """Return the files that the table consists of."""
    return [task.file.file_path for task in lake.table().load().scan().plan_files()]


def columns_in(path: str) -> Any:
    """Return the columns of a file, with the field ids that it gives them itself; raises where it has none."""
    return pyarrow_to_schema(parquet.read_schema(path.removeprefix("file://"))).as_struct()


def stored(lake: Lake) -> list[str]:
    """Return the names of all files of rows below the lake's folder."""
    return sorted(path.name for path in (lake.folder / "lake").rglob("*.parquet"))


async def ship_both(lake: Lake, spool: Spool) -> None:
    """Ship what waits to Postgres and to the lake."""
    shared = SharedSpool(spool, 2)
    async with log_shipper(lake, shared.shelf_of(1)) as shipper:
        await shipper.drain(60)
    await lake.ship(shared.shelf_of(0))


def some_rows(numbers: Iterable[int], version_id: int, change: Callable[[int], dict[str, Any]]) -> list[PredictionRow]:
    return [
        a_row(number, version_id=version_id)._replace(predicted_at=time.time(), **change(number)) for number in numbers
    ]
