"""A worker that only logs: appends rows, prints the id of each whose append returned, and ships.

Arguments: state folder, DSN, number of the first row, seconds between rows, and a file to put there once rows were
shipped. Every 50th row is poison. Runs on until killed.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import structlog
from traffic.spooled_rows import a_row, new_windows, no_threshold

from understudy.adapters.disk.spool import Spool
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.shipping.log_shipper import LogShipper


class Silent:
    """Telemetry that nobody reads."""

    def predicted(self, *_: Any) -> None: ...

    def count(self, *_: Any, by: float = 1) -> None: ...

    def observe(self, *_: Any) -> None: ...

    def set(self, *_: Any) -> None: ...

    def forget(self, *_: Any) -> None: ...


class Announcing(Silent):
    """Puts a file there at the first rows that are in the log: who kills workers can wait for it."""

    def __init__(self, shipped: Path) -> None:
        self._shipped = shipped

    def count(self, *named: Any, by: float = 1) -> None:
        if named == ("prediction_log_rows_total", "written"):
            self._shipped.touch()


async def work(state: Path, dsn: str, first: int, pause_seconds: float, shipped: Path) -> None:
    spool = Spool(state, limit_bytes=1 << 26, segment_bytes=20_000, sync_seconds=0.1)
    store = PostgresPredictionStore(dsn, timeout_seconds=1.0)
    telemetry = Announcing(shipped)
    shipper = LogShipper(
        spool, store, new_windows, no_threshold, telemetry, batch_rows=50, interval_seconds=0.02, orphan_seconds=0.2
    )
    shipping = asyncio.create_task(shipper.run())
    number = first
    while not shipping.done():
        prediction = b'"\\u0000"' if number % 50 == 0 else b'{"score":0.5}'
        row = a_row(number, prediction=prediction)._replace(predicted_at=time.time())
        if spool.append(row):
            print(row.prediction_id, flush=True)  # noqa: T201 - the promise
        number += 1
        await asyncio.sleep(pause_seconds)
    shipping.result()


if __name__ == "__main__":
    # Standard output is for the promises alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5])))
