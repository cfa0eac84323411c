"""How old the newest outcome of each model is, against a real Postgres."""

import asyncpg
import pytest
from traffic.logged import StoreAsOf, register

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.monitoring.outcome_lag_job import OutcomeLagJob

ADD = """
    INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at, received_at)
    SELECT $1 || n, $1, 'cust-' || n, 'converted', 1, now(), to_timestamp($2::float8 - n)
    FROM generate_series(0, $3::int - 1) AS n
"""
ADD_POLICY = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)"


@pytest.fixture
async def now(database: asyncpg.Connection) -> float:
    for model in ("churn", "fraud", "quiet"):
        await database.execute(ADD_POLICY, model, await register(database, model, "6"))
    at: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    return at


async def test_the_age_of_each_models_newest_outcome_is_a_gauge_and_others_have_none(database, database_url, now):
    await database.execute(ADD, "churn", now - 60, 3)
    await database.execute(ADD, "fraud", now - 7_200, 2)
    await database.execute(ADD, "gone", now - 5, 1)
    store, telemetry = StoreAsOf(database_url, timeout_seconds=10), MemoryTelemetry()
    store.now = now
    job = OutcomeLagJob(store, telemetry)

    await job.tick(1)

    assert telemetry.gauges == {
        ("outcome_lag_seconds", "churn"): pytest.approx(60, abs=0.01),
        ("outcome_lag_seconds", "fraud"): pytest.approx(7_200, abs=0.01),
    }


async def test_a_model_that_others_crowd_out_is_remembered_until_nobody_serves_it(database, database_url, now):
    await database.execute(ADD, "fraud", now - 7_200, 1)
    store, telemetry = StoreAsOf(database_url, timeout_seconds=10), MemoryTelemetry()
    store.now = now
    job = OutcomeLagJob(store, telemetry)
    await job.tick(1)
    await database.execute(ADD, "churn", now, 7_000)
    await database.execute(
        "UPDATE OutcomeEvent SET received_at = to_timestamp($1::float8) WHERE model_name = 'churn'", now
    )
    await database.execute(ADD, "churn-", now, 4_000)
    store.now = now + 60

    await job.tick(1)
    crowded = telemetry.gauges["outcome_lag_seconds", "fraud"]
    await database.execute("DELETE FROM ServingPolicy WHERE model_name = 'fraud'")
    await job.tick(1)

    assert (await store.newest_outcomes()).keys() == {"churn", "churn-"}
    assert crowded == pytest.approx(7_260, abs=0.01)
    assert {labels[1] for labels in telemetry.gauges} == {"churn"}
