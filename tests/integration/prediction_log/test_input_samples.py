"""Logged inputs in a real database: from the spool into the log, read for drift, erased by entity and by age."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import pack
from zlib import crc32

import asyncpg
import orjson
import pytest
from traffic.logged import LoggedTraffic, lead, register
from traffic.spooled_rows import a_row

from understudy.adapters.disk.spool import Spool
from understudy.adapters.migrations import downgrade, upgrade
from understudy.adapters.postgres.monitoring.metrics import INPUT_SAMPLES, PostgresMetricStore
from understudy.adapters.postgres.monitoring.retention import PostgresRetentionStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.errors import LeadershipLost
from understudy.monitoring.retention_job import RetentionJob

HOUR = 3_600.0
DAY = 86_400.0
COUNT = "SELECT count(*) FROM PredictionLog WHERE inputs IS NOT NULL"


@dataclass
class World:
    database: asyncpg.Connection
    store: PostgresMetricStore
    traffic: LoggedTraffic
    version_id: int
    epoch: int
    at: float
    """The beginning of an hour."""

    async def ship(self, entities: Sequence[str], at: float, inputs: bytes | None = b'{"age":41}') -> None:
        await self.traffic.ship([self.row(entity, at, inputs) for entity in entities])

    def row(self, entity: str, at: float, inputs: bytes | None) -> PredictionRow:
        return a_row(version_id=self.version_id)._replace(entity_id=entity, predicted_at=at, inputs=inputs)


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    traffic = LoggedTraffic(database_url)
    version_id = await register(database, "visits", "1")
    store = PostgresMetricStore(database_url, timeout_seconds=20)
    at = time.time() // HOUR * HOUR - 2 * HOUR
    yield World(database, store, traffic, version_id, await lead(database_url), at)
    await traffic.close()


async def test_inputs_arrive_as_they_were_and_null_where_there_are_none(world):
    text = orjson.dumps({"plan": 'a\tb\\c"d\n é', "age": 41.5, "is_new": True})

    await world.ship(["a"], world.at, text)
    await world.ship(["b"], world.at, None)

    rows = await world.database.fetch("SELECT inputs = $1::jsonb AS same FROM PredictionLog ORDER BY id", text.decode())
    assert [row["same"] for row in rows] == [True, None]


async def test_every_partition_has_the_column_and_both_indexes_new_ones_too(world):
    far = datetime.now(UTC) + timedelta(days=300)
    await world.database.execute("SELECT understudy_ensure_partitions(0, $1)", far)

    rows = await world.database.fetch(
        """SELECT inhrelid::regclass::text AS name,
                  EXISTS (SELECT FROM pg_attribute WHERE attrelid = inhrelid AND attname = 'inputs') AS has_column,
                  (SELECT count(*) FROM pg_index WHERE indrelid = inhrelid AND indpred IS NOT NULL) AS indexes
           FROM pg_inherits WHERE inhparent = 'predictionlog'::regclass"""
    )

    assert f"predictionlog_{far:%Y_%m}" in {row["name"] for row in rows}
    assert {(row["has_column"], row["indexes"]) for row in rows} == {(True, 2)}


async def test_a_spool_that_the_version_before_wrote_is_shipped(world, database_url, tmp_path):
    with_inputs = COLUMNS.index("inputs")
    line = encode_line(world.row("old", world.at, None))
    before = b"\t".join(line.rstrip(b"\n").split(b"\t")[:with_inputs]) + b"\n"
    assert with_inputs == len(COLUMNS) - 1
    folder = tmp_path / "4f0d1a4e-0000-4000-8000-000000000001"
    folder.mkdir()
    header = orjson.dumps({"format": 1, "columns": COLUMNS[:with_inputs]}) + b"\n"
    segment = framed(header) + framed(before)
    (folder / "001763661061.log").write_bytes(segment)

    spool = Spool(tmp_path, limit_bytes=10**6, segment_bytes=10**6, sync_seconds=1)
    store = PostgresPredictionStore(database_url, timeout_seconds=10)
    spool.append(world.row("new", world.at, b'{"age":41}'))
    place = await store.committed(spool.own.spool_id)
    while (batch := spool.own.read_from(*place, 10, 10**6)) is not None:
        await store.write(batch)
        place = (batch.segment, batch.end)
    await store.close()
    spool.close()

    rows = await world.database.fetch("SELECT entity_id, inputs FROM PredictionLog ORDER BY id")
    assert [tuple(row) for row in rows] == [("old", None), ("new", '{"age": 41}')]


def framed(line: bytes) -> bytes:
    return pack("<II", len(line), crc32(line, len(line))) + line


@pytest.mark.old_schema
async def test_going_back_takes_the_inputs_away_and_leaves_the_log(world, database_url):
    await world.ship(["a", "b"], world.at)

    await downgrade(database_url, "0002", lose_data=True)
    without = await world.database.fetchval("SELECT count(*) FROM PredictionLog")
    await upgrade(database_url)

    assert without == 2
    assert await world.database.fetchval(COUNT) == 0


async def test_the_inputs_of_one_version_and_hour_are_read_and_no_others(world):
    other = await register(world.database, "visits", "2")
    await world.ship(["before"], world.at - 1)
    await world.ship(["first", "last"], world.at, b'{"age":1}')
    await world.ship(["last"], world.at + HOUR - 0.001, b'{"age":2}')
    await world.ship(["after"], world.at + HOUR)
    await world.ship(["not sampled"], world.at, None)
    await world.traffic.ship([world.row("other", world.at, b"{}")._replace(model_version_id=other)])

    found = await world.store.input_samples(world.version_id, world.at, 100)

    values = sorted((sample.entity_id, orjson.loads(sample.inputs)["age"]) for sample in found)
    assert values == [("first", 1), ("last", 1), ("last", 2)]


async def test_of_more_rows_than_are_wanted_whole_entities_are_taken_that_chance_chose(world):
    await world.ship([f"user-{place % 1_000}" for place in range(4_000)], world.at)

    found = await world.store.input_samples(world.version_id, world.at, 800)
    again = await world.store.input_samples(world.version_id, world.at, 800)

    entities = [sample.entity_id for sample in found]
    numbers = [int(entity.removeprefix("user-")) for entity in set(entities)]
    assert sorted(found) == sorted(again)
    assert len(entities) == 800
    assert len(set(entities)) == 200
    # 200 of 1,000: the mean of uniform numbers has standard deviation 289 / √200 = 20.4, less for a fifth of all.
    assert abs(sum(numbers) / 200 - 499.5) < 6 * 20.4


async def test_an_hour_is_read_in_the_order_of_its_index_and_no_further_than_wanted(world):
    await world.ship([f"user-{place}" for place in range(2_000)], world.at)
    await world.database.execute("ANALYZE PredictionLog")
    hour = [datetime.fromtimestamp(at, UTC) for at in (world.at, world.at + HOUR)]

    rows = await world.database.fetch(f"EXPLAIN (COSTS OFF) {INPUT_SAMPLES}", world.version_id, *hour, 50)

    plan = [row[0].strip() for row in rows]
    assert plan[0] == "Limit"
    assert plan[1].startswith("->  Index Scan using predictionlog_")
    assert "date_trunc" in plan[2]


async def test_the_inputs_of_an_entity_are_erased_from_every_month_and_model_and_nobody_elses(world):
    other = await register(world.database, "churn", "1")
    await world.ship(["dana", "dana", "lee"], world.at)
    await world.ship(["dana"], world.at - 40 * DAY)
    await world.traffic.ship([world.row("dana", world.at, b'{"x":1}')._replace(model_version_id=other)])

    erased = await world.database.fetchval("SELECT understudy_redact_inputs('dana')")
    again = await world.database.fetchval("SELECT understudy_redact_inputs('dana')")

    assert (erased, again) == (4, 0)
    left = await world.database.fetch("SELECT entity_id FROM PredictionLog WHERE inputs IS NOT NULL")
    assert [row["entity_id"] for row in left] == ["lee"]
    assert await world.database.fetchval("SELECT count(*) FROM PredictionLog") == 5


async def test_inputs_are_erased_when_they_are_too_old_a_piece_at_a_time_and_their_calls_are_kept(world):
    for age in (31 * DAY, 30 * DAY + HOUR, 30 * DAY):
        await world.ship([f"user-{place}" for place in range(15)], world.at - age)
    before = world.at - 30 * DAY + HOUR / 2

    pieces = [await world.store.forget_inputs(before, 10, epoch=world.epoch) for _ in range(5)]

    assert pieces == [10, 5, 10, 5, 0]
    assert await world.database.fetchval(COUNT) == 15
    assert await world.database.fetchval("SELECT count(*) FROM PredictionLog") == 45


async def test_the_monitor_erases_old_inputs_by_itself_and_only_while_it_leads(world, database_url):
    await world.ship(["a", "b"], world.at - 31 * DAY)
    await world.ship(["c"], world.at)
    windows = PostgresWindowLog(database_url, timeout_seconds=10)
    growing = PostgresRetentionStore(database_url, timeout_seconds=10)
    job = RetentionJob(
        windows,
        world.store,
        growing,
        window_days=35,
        metric_days=90,
        input_days=30,
        outcome_days=400,
        now=lambda: world.at,
    )

    with pytest.raises(LeadershipLost):
        await job.tick(world.epoch - 1)
    before = await world.database.fetchval(COUNT)
    await job.tick(world.epoch)

    assert (before, await world.database.fetchval(COUNT)) == (3, 1)


async def test_the_percentage_is_a_field_of_the_policy_like_the_others(world):
    await world.database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", world.version_id
    )
    await world.database.execute("UPDATE ServingPolicy SET input_sample_percent = 5")

    after = await world.database.fetchrow(
        "SELECT generation, after ->> 'input_sample_percent' AS percent FROM PolicyAudit ORDER BY id DESC LIMIT 1"
    )
    assert tuple(after) == (2, "5")
