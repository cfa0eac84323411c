"""The database of a running shipper becomes an older one: what it lacks and the disk still has is shipped again."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from conftest import PostgresServer
from e2e.stack import register, sql
from loopback.server_statements import ServerStatements
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.windows.window import Window
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome, WriteResult
from understudy.shipping.log_shipper import LogShipper

SECONDS = 60.0


class BehindAPooler:
    """A store whose connection goes to another server now and then, as a pooler's does, and no call fails."""

    def __init__(self, database_url: str) -> None:
        self.store = PostgresPredictionStore(database_url, timeout_seconds=SECONDS)

    async def close(self) -> None:
        await self.store.close()

    async def leads_to(self, database_url: str) -> None:
        await self.close()
        self.store = PostgresPredictionStore(database_url, timeout_seconds=SECONDS)

    async def committed(self, spool_id: str) -> tuple[int, int]:
        return await self.store.committed(spool_id)

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        return await self.store.write(batch, windows)

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        return await self.store.reject(batch, why)


@pytest.fixture
def backup_url(postgres: PostgresServer, statements: ServerStatements) -> Iterator[str]:
    """Where the test makes its backup, a database that is ready for use."""
    name = f"understudy_test_{uuid4().hex[:12]}"
    yield postgres.url_of(name)
    statements.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def on_disk(spool: Spool) -> list[str]:
    """Return the ids of all rows that the spool's segments have, shipped or not."""
    found, place = [], (0, 0)
    while (batch := spool.own.read_from(*place, 100, 100_000)) is not None:
        found += ids_in(batch.rows)
        place = (batch.segment, batch.end)
    return found


async def test_rows_that_left_the_disk_after_the_backup_are_lost_and_all_others_are_there_and_counted_once(
    tmp_path: Path, database_url: str, backup_url: str, statements: ServerStatements
):
    version = await register(database_url, 1, [])
    store = BehindAPooler(database_url)
    spool = Spool(tmp_path, limit_bytes=1_048_576, segment_bytes=4_000, sync_seconds=0.02)
    shipper = LogShipper(
        spool, store, new_windows, no_threshold, MemoryTelemetry(), batch_rows=4, interval_seconds=0.01
    )

    async def ship(numbers: range, version_id: int = version) -> None:
        for number in numbers:
            assert spool.append(a_row(number, version_id=version_id))
        await shipper.drain(SECONDS)

    await ship(range(10))
    await store.close()
    statements.execute(f"CREATE DATABASE {backup_url.rpartition('/')[2]} TEMPLATE {database_url.rpartition('/')[2]}")
    await ship(range(10, 100))
    await ship(range(100, 103), await register(database_url, 2, []))  # a version that the backup lacks
    kept = on_disk(spool)
    await store.leads_to(backup_url)
    await ship(range(103, 120))
    await store.close()
    spool.close()

    logged = [row["id"] for row in await sql(backup_url, "SELECT prediction_id::text AS id FROM PredictionLog")]
    (told,) = await sql(
        backup_url,
        "SELECT (SELECT sum(calls) FROM PredictionWindow)::int AS calls,"
        " (SELECT count(*) FROM PredictionDeadLetter) AS dead",
    )
    wanted = {a_prediction_id(number) for number in (*range(10), *range(103, 120))} | set(kept)
    wanted -= {a_prediction_id(number) for number in range(100, 103)}
    assert 0 < len(wanted) < 117, "some rows have left the disk, and some have not"
    assert Counter(logged) == Counter(wanted)
    assert told["dead"] == 3
    assert told["calls"] == len(logged)
