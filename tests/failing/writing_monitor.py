"""A monitor whose job writes a row in the name of its epoch, as a step of a rollout would.

Each write takes a while and goes on when its job is cancelled, the worst that a job can do: whatever happens to the
process, some writes are under way. Settings are those of ``understudy serve monitor``; it runs until SIGTERM.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.adapters.postgres.monitoring.lease import PostgresLease, require_epoch
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.monitor import MonitorParts, make_worker
from understudy.entrypoints.monitor import serve
from understudy.errors import LeadershipLost, RegistryError
from understudy.monitoring.worker import Job
from understudy.ports.monitoring.lease import Epoch
from understudy.settings import Settings

INTERVAL_SECONDS = 0.2
WRITE_SECONDS = 0.5

TABLES = """
    CREATE TABLE Step (epoch BIGINT, pid INTEGER, written_at TIMESTAMPTZ DEFAULT clock_timestamp());
    CREATE TABLE Refused (epoch BIGINT, pid INTEGER);
"""


async def write(database_url: str, epoch: Epoch) -> None:
    await asyncio.sleep(WRITE_SECONDS)
    async with translated("the step"):
        connection = await connect(database_url, timeout_seconds=5, application_name="understudy-step")
        try:
            async with connection.transaction():
                await require_epoch(connection, epoch)
                await connection.execute("INSERT INTO Step (epoch, pid) VALUES ($1, $2)", epoch, os.getpid())
        except LeadershipLost:
            await connection.execute("INSERT INTO Refused VALUES ($1, $2)", epoch, os.getpid())
        finally:
            connection.terminate()


@asynccontextmanager
async def open_writing_monitor(settings: Settings) -> AsyncIterator[MonitorParts]:
    database_url = settings.database_url.get_secret_value()
    writes: set[asyncio.Task[None]] = set()

    def forget(task: asyncio.Task[None]) -> None:
        writes.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), RegistryError | None):
            raise AssertionError from task.exception()

    async def begin_write(epoch: Epoch) -> None:
        task = asyncio.create_task(write(database_url, epoch))
        writes.add(task)
        task.add_done_callback(forget)

    lease = PostgresLease(database_url)
    telemetry = PrometheusTelemetry()
    jobs = [Job("step", INTERVAL_SECONDS, 5.0, begin_write)]
    yield MonitorParts(make_worker(settings, lease, jobs, telemetry), telemetry)
    await lease.close()


if __name__ == "__main__":
    sys.exit(serve(Settings(), open_writing_monitor))
