"""A process that logs and ships as ``UNDERSTUDY_LOG`` says, put together as a proxy does it.

Arguments: mode, folder, DSN, place of the lake, number of the first row. It prints the id of each row whose append
returned, until SIGTERM, which has it drain as a proxy does.
"""

import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import structlog
from traffic.spooled_rows import a_row

from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.prediction_log.log import open_shipper, open_spool
from understudy.settings import Settings


async def work(settings: Settings, first: int) -> None:
    """Append a row each millisecond, and ship."""
    telemetry = PrometheusTelemetry()
    feed: Any = SimpleNamespace(snapshot=None)
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    async with AsyncExitStack() as stack:
        spool = open_spool(settings, telemetry, stack)
        open_shipper(settings, spool, feed, telemetry, stack)
        number = first
        while not ends.is_set():
            # Every tenth row has sampled inputs.
            inputs = b'{"age":41}' if number % 10 == 0 else None
            row = a_row(number)._replace(predicted_at=time.time(), inputs=inputs)
            if spool.append(row):
                print(row.prediction_id, flush=True)  # noqa: T201 - the promise
            number += 1
            await asyncio.sleep(0.001)


if __name__ == "__main__":
    # Standard output is for the promises alone.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    mode, folder, dsn, place, first = sys.argv[1:]
    asyncio.run(
        work(
            Settings(
                database_url=dsn, log=mode, lake_url=place, state_dir=Path(folder) / "state", lake_interval_seconds=0.2,
                log_interval_seconds=0.02, drain_seconds=120, spool_segment_bytes=20_000,
            ),
            int(first),
        )
    )  # fmt: skip
