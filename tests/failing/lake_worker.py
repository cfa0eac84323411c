"""A process of the lake that runs until it is killed: ``worker`` logs and ships both ways, ``committer`` commits.

Arguments: which one, folder, DSN; of a worker also the number of the first row. A worker prints the id of each row
whose append returned.
"""

import asyncio
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog
from integration.prediction_log.log_worker import Silent
from traffic.spooled_rows import a_row, new_windows, no_threshold
from worlds.lake import Lake

from understudy.adapters.lake.parquet_rows import ParquetRows
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.errors import UnderstudyError
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.log_shipper import LogShipper
from understudy.shipping.shared_spool import SharedSpool


async def work(folder: Path, dsn: str, first: int) -> None:
    """Append a row each millisecond, and ship."""
    lake = Lake(dsn, folder)
    spool = lake.spool()
    shared = SharedSpool(spool, 2)
    new_files = partial(ParquetRows, folder / "files" / spool.own.spool_id)
    lake_shipper = LakeShipper(
        shared.shelf_of(0), lake.ledger, lake.store, new_files, Silent(), interval_seconds=0.05, file_bytes=1 << 20
    )
    store = PostgresPredictionStore(dsn, timeout_seconds=1.0)
    shipper = LogShipper(
        shared.shelf_of(1), store, new_windows, no_threshold, Silent(), batch_rows=50, interval_seconds=0.02,
        orphan_seconds=0.2,
    )  # fmt: skip
    running = [asyncio.create_task(lake_shipper.run()), asyncio.create_task(shipper.run())]
    number = first
    while not any(task.done() for task in running):
        row = a_row(number)._replace(predicted_at=time.time())
        if spool.append(row):
            print(row.prediction_id, flush=True)  # noqa: T201 - the promise
        number += 1
        await asyncio.sleep(0.001)
    for task in running:
        task.result()


async def commit(folder: Path, dsn: str) -> None:
    """Commit again and again."""
    job = Lake(dsn, folder).job()
    epoch = await Lake(dsn, folder).epoch()
    while True:
        with suppress(UnderstudyError):  # the lease of the one that was killed is not over, or another one committed
            await job.run(epoch)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    # Standard output is for the promises alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if sys.argv[1] == "worker":
        asyncio.run(work(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
    else:
        asyncio.run(commit(Path(sys.argv[2]), sys.argv[3]))
