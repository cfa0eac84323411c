"""What only a real Postgres can do to the prediction log."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from traffic.spooled_rows import a_prediction_id, a_row

from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row import PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.routing.policy import Role
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome

SPOOL = "0b0e6f4e-0000-4000-8000-000000000001"


@pytest.fixture
async def version_id(database: asyncpg.Connection) -> int:
    found: int = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )
    return found


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[PostgresPredictionStore]:
    opened = PostgresPredictionStore(database_url, timeout_seconds=2.0)
    yield opened
    await opened.close()


def a_batch(*rows: PredictionRow, segment: int = 1) -> SpooledBatch:
    encoded = [encode_line(row) for row in rows]
    return SpooledBatch(SPOOL, segment, 0, 10_000, encoded)


async def test_every_column_arrives_as_it_was(store, database, version_id):
    prediction = '{"label":"a\\\\b\\tc","text":"é\\u2028\\"\\\\"}'.encode()
    row = a_row(1, version_id=version_id, prediction=prediction)._replace(
        predicted_at=time.time(),
        entity_id="a\tb\\c\nd\re\\N é",
        role=Role.SHADOW,
        status=Status.TIMEOUT,
        error_code="E504",
        score=None,
        rollout_id=5,
        cache_hit=True,
        defaulted=("age", 'qu"o\\te'),
        deadline_us=140_000,
    )

    await store.write(a_batch(row))

    found = await database.fetchrow("SELECT *, prediction = $1::jsonb AS same FROM PredictionLog", prediction.decode())
    assert found["same"]
    assert found["entity_id"] == row.entity_id
    assert str(found["prediction_id"]) == row.prediction_id
    assert abs(found["predicted_at"] - datetime.fromtimestamp(row.predicted_at, UTC)) <= timedelta(microseconds=1)
    assert (found["role"], found["status"], found["error_code"]) == ("shadow", "timeout", "E504")
    assert (found["latency_ms"], found["latency_us"]) == (12, 12_999)
    assert (found["score"], found["rollout_id"], found["cache_hit"]) == (None, 5, True)
    assert found["deadline_us"] == 140_000
    assert found["defaulted"] == '["age", "qu\\"o\\\\te"]'


async def test_a_month_without_a_partition_is_made_and_is_not_poison(store, database, version_id):
    far = datetime.now(UTC) + timedelta(days=300)
    old = datetime.now(UTC) - timedelta(days=600)
    rows = [
        a_row(number, version_id=version_id)._replace(predicted_at=when.timestamp())
        for number, when in enumerate((far, old))
    ]

    result = await store.write(a_batch(*rows))

    assert result.outcome is WriteOutcome.WRITTEN
    assert await database.fetchval("SELECT count(*) FROM PredictionLog") == 2


async def test_a_partition_that_was_dropped_under_it_is_made_again(store, database, version_id):
    for partition in await database.fetch(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'predictionlog'::regclass"
    ):
        await database.execute(f"DROP TABLE {partition[0]}")

    result = await store.write(a_batch(a_row(1, version_id=version_id)._replace(predicted_at=time.time())))

    assert result.outcome is WriteOutcome.WRITTEN


async def test_a_clock_far_outside_is_poison_and_does_not_block(store, version_id):
    row = a_row(1, version_id=version_id)._replace(predicted_at=86_400.0)

    result = await store.write(a_batch(row))

    assert result.outcome is WriteOutcome.REJECTED
    assert "two years" in result.why


async def test_a_row_of_a_version_that_is_gone_is_poison(store, version_id):
    row = a_row(1, version_id=version_id + 1)._replace(predicted_at=time.time())

    result = await store.write(a_batch(row))

    assert result.outcome is WriteOutcome.REJECTED
    assert "23503" in result.why


@pytest.mark.alone
async def test_a_lock_held_by_somebody_is_waited_for_within_the_deadline(store, database, version_id):
    batch = a_batch(a_row(1, version_id=version_id)._replace(predicted_at=time.time()))
    began = time.monotonic()
    async with database.transaction():
        await database.execute("LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")

        with pytest.raises(RegistryUnavailable):
            await store.write(batch)

    assert time.monotonic() - began < 2.5
    assert (await store.write(batch)).outcome is WriteOutcome.WRITTEN


async def test_two_writers_of_one_batch_write_it_once(store, database, database_url, version_id):
    other = PostgresPredictionStore(database_url, timeout_seconds=2.0)
    rows = [a_row(number, version_id=version_id)._replace(predicted_at=time.time()) for number in range(200)]

    results = await asyncio.gather(*(each.write(a_batch(*rows)) for each in (store, other)))
    await other.close()

    assert {result.outcome for result in results} == {WriteOutcome.WRITTEN, WriteOutcome.OFFSET_MOVED}
    assert await database.fetchval("SELECT count(*) FROM PredictionLog") == 200


async def test_a_write_that_is_cancelled_leaves_the_store_usable(store, database, version_id):
    batch = a_batch(a_row(1, version_id=version_id)._replace(predicted_at=time.time()))
    async with database.transaction():
        await database.execute("LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")
        writing = asyncio.create_task(store.write(batch))
        await asyncio.sleep(0.2)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    assert (await store.write(batch)).outcome is WriteOutcome.WRITTEN
    assert [str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog")] == [
        a_prediction_id(1)
    ]


async def test_a_connection_that_was_ended_is_opened_again(store, database, version_id):
    batch = a_batch(a_row(1, version_id=version_id)._replace(predicted_at=time.time()))
    await store.committed(SPOOL)
    await database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'understudy-log'"
        " AND datname = current_database()"
    )

    with pytest.raises(RegistryUnavailable):
        await store.write(batch)

    assert (await store.write(batch)).outcome is WriteOutcome.WRITTEN


async def test_a_url_in_sqlalchemys_spelling_is_understood(database_url, version_id):
    store = PostgresPredictionStore(database_url.replace("postgresql://", "postgresql+asyncpg://"), timeout_seconds=2.0)

    result = await store.write(a_batch(a_row(1, version_id=version_id)._replace(predicted_at=time.time())))

    assert result.outcome is WriteOutcome.WRITTEN
    await store.close()


async def test_a_url_of_something_else_is_refused_as_that():
    store = PostgresPredictionStore("mysql://127.0.0.1:1/nowhere", timeout_seconds=2.0)

    with pytest.raises(RegistryUnavailable, match="DATABASE_URL"):
        await store.committed(SPOOL)


async def test_without_a_server_it_says_so_at_once():
    store = PostgresPredictionStore("postgresql://127.0.0.1:1/nowhere", timeout_seconds=2.0)

    with pytest.raises(RegistryUnavailable):
        await store.committed(SPOOL)


async def test_rows_of_a_newer_release_wait_for_the_migration_that_adds_their_column(store, database, version_id):
    batch = a_batch(a_row(1, version_id=version_id)._replace(deadline_us=140_000))
    await database.execute("ALTER TABLE PredictionLog DROP COLUMN deadline_us")

    with pytest.raises(MigrationNeeded, match="deadline_us"):
        await store.write(batch)
    await database.execute("ALTER TABLE PredictionLog ADD COLUMN deadline_us BIGINT")
    result = await store.write(batch)

    assert result.outcome is WriteOutcome.WRITTEN
    assert await database.fetchval("SELECT deadline_us FROM PredictionLog") == 140_000


async def test_columns_that_the_table_does_not_have_need_a_migration(store, version_id):
    batch = a_batch(a_row(1, version_id=version_id))

    with pytest.raises(MigrationNeeded):
        await store.write(batch._replace(columns=[*batch.columns[:-1], "from_the_future"]))
    assert await store.committed(SPOOL) == (0, 0)
