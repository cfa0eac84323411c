"""An offset in the database that no shipper of the spool wrote: rows are shipped all the same, and an alarm says so."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.ports.prediction_log.prediction_log import PredictionStore
from understudy.shipping.log_shipper import LogShipper

DAYS_100 = 100 * 86_400
YEARS_70 = 70 * 365 * 86_400
SECONDS = 10.0


@contextmanager
def a_spool(directory: Path) -> Iterator[Spool]:
    spool = Spool(directory, limit_bytes=1_048_576, segment_bytes=1_500, sync_seconds=0.02)
    try:
        yield spool
    finally:
        spool.close()


def a_shipper(spool: Spool, store: PredictionStore, telemetry: MemoryTelemetry) -> LogShipper:
    return LogShipper(spool, store, new_windows, no_threshold, telemetry, batch_rows=4, interval_seconds=0.01)


def append(spool: Spool, *numbers: int) -> None:
    for number in numbers:
        assert spool.append(a_row(number))


async def move(store: MemoryPredictionStore, spool_id: str, segment: int, offset: int = 0) -> None:
    """Move an offset as ``UPDATE SpoolOffset`` does."""
    store._offsets[spool_id] = (segment, offset)  # noqa: SLF001 - what SQL does, the store has no method for


@pytest.mark.parametrize(
    "segment", [int(time.time()) + DAYS_100, 9 * 10**18], ids=["in a hundred days", "of nine quintillions"]
)
async def test_rows_behind_an_offset_that_another_session_moved_away_are_logged_once_and_an_error_is_counted(
    tmp_path, segment
):
    store, telemetry = MemoryPredictionStore(), MemoryTelemetry()
    with a_spool(tmp_path) as spool:
        shipper = a_shipper(spool, store, telemetry)
        append(spool, *range(10))
        await shipper.drain(SECONDS)
        spool_id = spool.own.spool_id
        await move(store, spool_id, segment)

        for numbers in (range(10, 20), range(20, 30)):
            append(spool, *numbers)
            await shipper.drain(SECONDS)

        assert spool.own.spool_id != spool_id
        assert spool.own.unshipped_bytes == 0

    assert ids_in(store.rows) == [a_prediction_id(number) for number in range(30)]
    assert telemetry.counts["prediction_log_errors_total", "offset"] == 1


async def test_the_next_process_goes_on_under_the_id_that_the_last_one_took(tmp_path):
    store, telemetry = MemoryPredictionStore(), MemoryTelemetry()
    with a_spool(tmp_path) as spool:
        append(spool, 1)
        await a_shipper(spool, store, telemetry).drain(SECONDS)
        await move(store, spool.own.spool_id, 9 * 10**18)
        append(spool, 2)
        await a_shipper(spool, store, telemetry).drain(SECONDS)
        taken = spool.own.spool_id
        append(spool, 3)

    with a_spool(tmp_path) as spool:
        assert spool.own.spool_id == taken
        append(spool, 4)
        await a_shipper(spool, store, telemetry).drain(SECONDS)

    assert ids_in(store.rows) == [a_prediction_id(number) for number in (1, 2, 3, 4)]
    assert telemetry.counts["prediction_log_errors_total", "offset"] == 1


async def test_a_process_that_starts_with_such_an_offset_and_an_orphan_with_one_lose_no_row(tmp_path):
    store, telemetry = MemoryPredictionStore(), MemoryTelemetry()
    with a_spool(tmp_path) as first, a_spool(tmp_path) as second:
        append(first, 1)
        append(second, 2)
        for spool in (first, second):
            await move(store, spool.own.spool_id, 9 * 10**18)

    with a_spool(tmp_path) as spool:
        append(spool, 3)
        shipper = a_shipper(spool, store, telemetry)
        await shipper.drain(SECONDS)
        await shipper._ship_orphans()  # noqa: SLF001 - one round of what run() does
        folders = [path for path in tmp_path.iterdir() if path.is_dir()]

    assert sorted(ids_in(store.rows)) == [a_prediction_id(number) for number in (1, 2, 3)]
    assert telemetry.counts["prediction_log_errors_total", "offset"] == 2
    assert len(folders) == 1, "the orphan is empty, and its folder gone"


async def test_a_folder_from_a_backup_whose_rows_were_shipped_meanwhile_is_not_shipped_again(tmp_path):
    store, telemetry = MemoryPredictionStore(), MemoryTelemetry()
    with a_spool(tmp_path) as spool:
        append(spool, 1)
        await move(store, spool.own.spool_id, int(time.time()) - 1)
        old = spool.own
        for path in old.folder.glob("*.log"):
            path.rename(path.with_name(f"{int(time.time()) - 100:012d}.log"))

    with a_spool(tmp_path) as spool:
        append(spool, 2)
        await a_shipper(spool, store, telemetry).drain(SECONDS)

    assert ids_in(store.rows) == [a_prediction_id(2)]
    assert telemetry.counts["prediction_log_errors_total", "offset"] == 0


async def test_postgres_has_every_row_although_a_session_moved_the_offset_away(database, database_url, tmp_path):
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )
    store, telemetry = PostgresPredictionStore(database_url, timeout_seconds=10), MemoryTelemetry()
    with a_spool(tmp_path) as spool:
        shipper = a_shipper(spool, store, telemetry)
        for number in range(20):
            assert spool.append(a_row(number, version_id=version))
            if number in (5, 12):
                await shipper.drain(SECONDS)
                moved = "UPDATE SpoolOffset SET segment = extract(epoch FROM now())::bigint + $1"
                await database.execute(moved, DAYS_100)
        await shipper.drain(SECONDS)
    await store.close()

    logged = [row[0] for row in await database.fetch("SELECT prediction_id::text FROM PredictionLog ORDER BY 1")]
    assert logged == [a_prediction_id(number) for number in range(20)]
    assert telemetry.counts["prediction_log_errors_total", "offset"] == 2


async def test_a_clock_that_was_years_ahead_holds_up_no_row_of_a_proxys_own_login(database, database_url, tmp_path):
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )
    login, telemetry = f"test_{uuid4().hex[:12]}", MemoryTelemetry()
    await database.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'secret' IN ROLE understudy_proxy")
    store = PostgresPredictionStore(
        f"postgresql://{login}:secret@{database_url.rpartition('@')[2]}", timeout_seconds=10
    )
    with a_spool(tmp_path) as spool:
        # One row as the wrong clock stamped it, in a segment that it numbered; the next begins when it was set right.
        assert spool.append(a_row(1, version_id=version)._replace(predicted_at=time.time() + YEARS_70))
        assert spool.append(a_row(2, version_id=version))
        for path in spool.own.folder.glob("*.log"):
            path.rename(path.with_name(f"{int(time.time()) + YEARS_70:012d}.log"))

    with a_spool(tmp_path) as spool:
        assert spool.append(a_row(3, version_id=version))
        await a_shipper(spool, store, telemetry).drain(SECONDS)
        unshipped = spool.own.unshipped_bytes
    await store.close()
    logged = [row[0] for row in await database.fetch("SELECT prediction_id::text FROM PredictionLog ORDER BY 1")]
    buried = await database.fetchval("SELECT count(*) FROM PredictionDeadLetter")
    await database.execute(f"DROP OWNED BY {login}; DROP ROLE {login}")

    assert (logged, buried, unshipped) == ([a_prediction_id(2), a_prediction_id(3)], 1, 0)


async def test_a_file_whose_number_fits_no_offset_holds_up_no_row(tmp_path):
    store, telemetry = MemoryPredictionStore(), MemoryTelemetry()
    with a_spool(tmp_path) as spool:
        (spool.own.folder / "99999999999999999999999.log").write_bytes(b"")
        (spool.own.folder / f"{2**63}.log").write_bytes(b"")

    with a_spool(tmp_path) as spool:
        append(spool, 1)
        await a_shipper(spool, store, telemetry).drain(SECONDS)

    assert ids_in(store.rows) == [a_prediction_id(1)]
    assert await store.committed(spool.own.spool_id) < (2**63, 0)
