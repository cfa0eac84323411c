"""Metrics in Postgres: every minute of every active version, once, by the leader alone."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import asyncpg
import numpy as np
import pytest
from traffic.logged import LoggedTraffic, StoreAsOf, lead, register, scored_rows

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.retention import PostgresRetentionStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.drift.hours import HOUR_SECONDS, prediction_hour
from understudy.core.drift.subject_window import PREDICTION
from understudy.core.prediction_log.row import Status
from understudy.core.routing.policy import Role
from understudy.errors import LeadershipLost
from understudy.monitoring.metrics_job import MAX_SECONDS, MetricsJob
from understudy.monitoring.retention_job import RetentionJob
from understudy.monitoring.score_tenths import ScoreTenths
from understudy.ports.monitoring.metric_store import MetricValue

ROWS = 900
DRAWN = np.random.default_rng(3).beta(2, 4, ROWS)


class World(NamedTuple):
    database: asyncpg.Connection
    store: StoreAsOf
    windows: PostgresWindowLog
    growing: PostgresRetentionStore
    traffic: LoggedTraffic
    job: MetricsJob
    epoch: int
    minute: float
    """The start of a minute in the past."""
    champion: int

    async def values(self, name: str, version_id: int | None = None) -> list[tuple[float, float]]:
        rows = await self.database.fetch(
            "SELECT extract(epoch FROM computed_at)::float8 AS at, value FROM PredictionMetric"
            " WHERE metric_name = $1 AND model_version_id = $2 ORDER BY at",
            name,
            version_id or self.champion,
        )
        return [tuple(row) for row in rows]


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    champion = await register(database, "churn", "6", output={"threshold": 0.5})
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", champion)
    store = StoreAsOf(database_url, timeout_seconds=10)
    windows = PostgresWindowLog(database_url, timeout_seconds=10)
    traffic = LoggedTraffic(database_url)
    now: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    minute = now // 60 * 60 - 7_200
    store.now = minute + 75
    job = MetricsJob(store, windows)
    growing = PostgresRetentionStore(database_url, timeout_seconds=10)
    yield World(database, store, windows, growing, traffic, job, await lead(database_url), minute, champion)
    await traffic.close()


async def test_the_metrics_of_a_minute_are_those_of_its_calls(world):
    rows = scored_rows(DRAWN, world.minute, world.champion)
    failed = [row._replace(status=Status.TIMEOUT, score=None) for row in rows[:90]]
    await world.traffic.ship([*failed, *rows[90:]])

    await world.job.tick(world.epoch)

    names = ("volume", "error_rate", "mean", "p50", "p95", "positive_rate", "latency_p99_ms")
    found = {name: dict(await world.values(name))[world.minute + 60] for name in names}
    scores = DRAWN[90:]
    latencies = np.array([row.latency_us for row in rows[90:]]) / 1_000
    assert (found["volume"], found["error_rate"]) == (ROWS, 0.1)
    assert found["mean"] == pytest.approx(scores.mean(), abs=1e-6)
    assert found["positive_rate"] == pytest.approx((scores >= 0.5).mean())
    for name, share, values in (("p50", 0.5, scores), ("p95", 0.95, scores), ("latency_p99_ms", 0.99, latencies)):
        assert found[name] == pytest.approx(np.quantile(values, share, method="inverted_cdf"), rel=0.01)


async def test_a_positive_rate_is_of_the_schemas_threshold_and_only_where_there_is_one(world):
    low = await register(world.database, "churn", "7", output={"threshold": 0.3})
    none = await register(world.database, "churn", "8")
    await world.database.execute(
        "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10, shadow_version = $2", low, none
    )
    for version_id, role in ((low, Role.CHALLENGER), (none, Role.SHADOW)):
        await world.traffic.ship(scored_rows(DRAWN, world.minute, version_id, role))

    await world.job.tick(world.epoch)

    ((_, rate),) = await world.values("positive_rate", low)
    assert (DRAWN >= 0.3).mean() <= rate <= (DRAWN >= 0.3 / 1.02).mean()
    assert len(await world.values("mean", none)) == 1
    assert await world.values("positive_rate", none) == []


async def test_measuring_again_writes_nothing_and_a_late_window_is_added(world):
    await world.traffic.ship(scored_rows(DRAWN, world.minute, world.champion))
    await world.job.tick(world.epoch)
    before = await world.database.fetch("SELECT *, xmin FROM PredictionMetric ORDER BY 1, 2, 4")

    await world.job.tick(world.epoch)
    again = await world.database.fetch("SELECT *, xmin FROM PredictionMetric ORDER BY 1, 2, 4")
    await world.traffic.ship(scored_rows(DRAWN[:7], world.minute, world.champion))
    world.store.now += 60
    await world.job.tick(world.epoch)

    assert again == before
    assert dict(await world.values("volume"))[world.minute + 60] == ROWS + 7


async def test_after_an_outage_the_last_hour_is_measured_and_no_minute_twice(world):
    await world.job.tick(world.epoch)
    world.store.now += 2 * MAX_SECONDS

    ticks = 0
    while len(await world.values("volume")) < 64:
        await world.job.tick(world.epoch)
        ticks += 1
        assert ticks < 20

    minutes = [at for at, _ in await world.values("volume")]
    until = world.minute + 60 + 2 * MAX_SECONDS
    assert minutes[-60:] == [until - 60 * place for place in reversed(range(60))]
    assert ticks == 6


async def test_a_version_without_traffic_has_a_volume_of_0_and_one_without_a_role_is_not_measured(world):
    staging = await register(world.database, "churn", "7")

    await world.job.tick(world.epoch)

    assert {value for _, value in await world.values("volume")} == {0.0}
    assert await world.values("error_rate") == []
    assert await world.values("volume", staging) == []


async def test_a_monitor_whose_lease_is_over_measures_nothing(world, database_url):
    await lead(database_url)

    with pytest.raises(LeadershipLost):
        await world.job.tick(world.epoch)

    assert await world.values("volume") == []


async def test_windows_that_are_older_than_asked_for_are_deleted_in_pieces(world):
    for hour in range(3):
        await world.traffic.ship(scored_rows(DRAWN[:60], world.minute - 3_600 * hour, world.champion))
    job = RetentionJob(
        world.windows,
        world.store,
        world.growing,
        window_days=1,
        metric_days=30,
        input_days=30,
        outcome_days=400,
        now=lambda: world.minute + 86_400 - 1_800,
    )

    await job.tick(world.epoch)

    left = await world.windows.of_versions([world.champion], 0, world.minute + 3_600)
    assert [window.key.start for window in left] == [world.minute + 15 * place for place in range(4)]


async def test_metrics_that_are_older_than_asked_for_are_deleted(world):
    for day in range(3):
        await world.store.add(
            [MetricValue(world.champion, "volume", float(day), world.minute - 86_400 * day)], epoch=world.epoch
        )
    job = RetentionJob(
        world.windows,
        world.store,
        world.growing,
        window_days=30,
        metric_days=1,
        input_days=30,
        outcome_days=400,
        now=lambda: world.minute + 3_600,
    )

    await job.tick(world.epoch)

    assert await world.values("volume") == [(world.minute, 0.0)]


async def test_a_further_arm_is_an_active_version_and_is_measured(world):
    arm = await register(world.database, "churn", "9")
    await world.database.execute(
        "UPDATE ServingPolicy SET arms = jsonb_build_array(jsonb_build_object('version_id', $1::bigint, 'first', 90,"
        " 'last', 99))",
        arm,
    )
    await world.traffic.ship(scored_rows(DRAWN, world.minute, arm))

    await world.job.tick(world.epoch)

    active = {version.id: version.role for version in (await world.store.active()).versions}
    assert active == {world.champion: Role.CHAMPION, arm: Role.CHALLENGER}
    assert (world.minute + 60, ROWS) in await world.values("volume", arm)


async def test_the_scores_of_a_minute_are_shown_in_tenths_of_the_champions_own_in_any_unit(world):
    challenger = await register(world.database, "churn", "7")
    await world.database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10", challenger)
    euros = 900 * DRAWN
    await world.traffic.ship(scored_rows(euros, world.minute, world.champion))
    await world.traffic.ship(scored_rows(1.5 * euros, world.minute, challenger, Role.CHALLENGER))
    windows = await world.windows.of_versions([world.champion], world.minute, world.minute + 60)
    start = world.minute // HOUR_SECONDS * HOUR_SECONDS
    hour = prediction_hour(start, windows)
    await world.store.add_hours(world.champion, {PREDICTION: hour}, epoch=world.epoch)
    telemetry = MemoryTelemetry()
    job = MetricsJob(world.store, world.windows, tenths=ScoreTenths(world.store, telemetry))

    await job.tick(world.epoch)

    of: dict[str, dict[float, float]] = {"6": {}, "7": {}}
    for (_, _, version, _, up_to), value in telemetry.gauges.items():
        of[version][float(up_to)] = value
    edges = sorted(of["6"])
    champion, other = ([of[version][edge] for edge in edges] for version in ("6", "7"))
    assert (len(edges), edges[-1]) == (10, np.inf)
    assert champion == pytest.approx(np.full(10, ROWS / 10), rel=0.3)
    assert (sum(champion), sum(other)) == (ROWS, ROWS)
    assert sum(other[:5]) < 0.3 * ROWS


@pytest.mark.parametrize(
    "schema", ['{"threshold": 1e400}', '{"threshold": 1e-400}', '{"threshold": [0.5]}', "[1]", '"x"']
)
async def test_a_schema_by_hand_that_makes_no_sense_stops_no_other_version(world, schema):
    odd = await world.database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema)"
        " VALUES ('churn', '9', 'file:///m', 'sklearn', '{}', $1::jsonb) RETURNING id",
        schema,
    )
    await world.database.execute("UPDATE ServingPolicy SET shadow_version = $1", odd)
    await world.traffic.ship(scored_rows(DRAWN, world.minute, world.champion))

    await world.job.tick(world.epoch)

    active = {version.id: version.threshold for version in (await world.store.active()).versions}
    assert active == {world.champion: 0.5, odd: None}
    assert (world.minute + 60, ROWS) in await world.values("volume")
