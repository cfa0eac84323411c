"""Training/serving skew from logged calls to what people are told, in a real Postgres beside a real Valkey."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg
import orjson
import pytest
from command import CommandLine
from redis.asyncio import Redis
from traffic.logged import LoggedTraffic, StoreAsOf, lead, register
from traffic.spooled_rows import a_row

from understudy.adapters.memory.features import MemoryFeatureStore
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.monitoring.skew_job import AGAIN_SECONDS, JUDGE_SECONDS, SkewJob
from understudy.ports.upstream.feature_store import FeatureStore

CALLS = 200
TICK_SECONDS = 15.0
RIGHT = [f"feature_{number}" for number in range(17)]
FEATURES = [*RIGHT, "amount", "visits", "device_age"]


def stored(entity: int, day: int = 0) -> dict[str, Any]:
    return {name: float(entity * 31 + place) for place, name in enumerate(FEATURES)} | {"visits": entity + day}


def served(entity: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the amount in cents, the visits of yesterday, and of each fifth entity no device age."""
    values = stored(entity)
    values |= {"amount": values["amount"] * 100, "visits": stored(entity, day=-1)["visits"]}
    return values, ("device_age",) if entity % 5 == 0 else ()


class World(NamedTuple):
    database: asyncpg.Connection
    store: StoreAsOf
    traffic: LoggedTraffic
    redis: Redis
    features: RedisFeatureStore
    telemetry: MemoryTelemetry
    epoch: int
    version: int

    def a_monitor(self, features: FeatureStore | None = None) -> SkewJob:
        return SkewJob(self.store, features or self.features, self.telemetry, environment="test")

    async def tick(self, job: SkewJob, seconds: float = TICK_SECONDS) -> None:
        self.store.now += seconds
        await job.tick(self.epoch)
        await job.settle()

    async def calls(self, first: int) -> None:
        """Log calls of the seconds that the next tick looks at."""
        rows = []
        for entity in range(first, first + CALLS):
            values, defaulted = served(entity)
            row = a_row(entity, version_id=self.version)._replace(predicted_at=self.store.now - 1.0)
            rows.append(row._replace(entity_id=f"user-{entity}", inputs=orjson.dumps(values), defaulted=defaulted))
        await self.traffic.ship(rows)

    async def told(self) -> list[tuple[str, dict[str, Any]]]:
        rows = await self.database.fetch("SELECT action, payload FROM AlertOutbox ORDER BY id")
        return [(row["action"], orjson.loads(row["payload"])) for row in rows]


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str, valkey_url: str) -> AsyncIterator[World]:
    traffic, features = LoggedTraffic(database_url), RedisFeatureStore(valkey_url, timeout_seconds=2.0)
    version = await register(database, "churn", "6")
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", version)
    async with Redis.from_url(valkey_url) as redis:
        pipeline = redis.pipeline(transaction=False)
        for entity in range(4 * CALLS):
            fields: dict[Any, Any] = {name: orjson.dumps(value).decode() for name, value in stored(entity).items()}
            pipeline.hset(f"features:churn:user-{entity}", mapping=fields)
        await pipeline.execute()
        store = StoreAsOf(database_url, timeout_seconds=10)
        now: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
        # The calls and their second question lie in one hour.
        store.now = now // 3_600 * 3_600 - 3_600 + 300
        yield World(database, store, traffic, redis, features, MemoryTelemetry(), await lead(database_url), version)
    await features.close()
    await traffic.close()


async def compared(world: World, job: SkewJob, first: int = 0, looks: int = 4) -> None:
    """Let calls be served and compared, and those that differ be asked for again."""
    await world.tick(job)
    for look in range(looks):
        await world.calls(first + look * CALLS)
        await world.tick(job)
    await world.tick(job, AGAIN_SECONDS + TICK_SECONDS)
    await world.tick(job, JUDGE_SECONDS)
    await world.tick(job, JUDGE_SECONDS)


async def test_another_unit_a_stale_value_and_nulls_are_named_and_no_other_feature(
    world: World, understudy: CommandLine
):
    job = world.a_monitor()

    await compared(world, job)

    ((action, alert),) = await world.told()
    assert (action, alert["kind"], alert["topic"]) == ("trigger", "drift", "features")
    broken = {"amount", "visits", "device_age"}
    assert {one["feature"] for one in alert["details"]["skewed"]} <= broken
    gauges = {
        labels[-1]: value for (name, *labels), value in world.telemetry.gauges.items() if name == "feature_skewed"
    }
    assert {feature for feature, value in gauges.items() if value} == broken
    assert set(gauges) == set(FEATURES)
    await world.database.execute("UPDATE DriftHour SET hour_start = date_trunc('hour', now())")
    shown = await understudy.beside("drift", "skew", "churn")
    assert "Served unlike the feature store: v6: amount, device_age, visits." in " ".join(shown.out.split())
    assert shown.code == 1
    report = (await understudy.beside("drift", "skew", "churn", "--json")).json["report"]
    features = {one["feature"]: one for one in report["versions"][0]["features"]}
    assert list(features) == sorted(FEATURES)
    assert {name for name, one in features.items() if one["state"] == "drift"} == broken
    assert features["amount"]["ratio"] == pytest.approx(100, rel=0.01)
    assert (features["visits"]["differs"], features["device_age"]["missing"]) == (4 * CALLS, 4 * CALLS // 5)


async def test_the_next_leader_adds_to_the_hour_and_ends_the_incident_once_the_features_are_right(world: World):
    before = world.a_monitor()
    await compared(world, before, looks=2)
    await before.stop()
    job = world.a_monitor()

    await compared(world, job, first=2 * CALLS, looks=2)

    counted = await world.database.fetch("SELECT subject, row_count FROM DriftHour WHERE subject LIKE 'skew:%'")
    assert {row["subject"]: row["row_count"] for row in counted}["skew:visits"] == 4 * CALLS
    await world.database.execute("DELETE FROM ServingPolicy")
    await world.tick(job)
    assert [action for action, _ in await world.told()] == ["trigger", "resolve"]


async def test_a_value_that_moves_by_itself_is_not_counted(world: World):
    job = world.a_monitor()
    await world.tick(job)
    await world.calls(0)
    await world.tick(job)
    pipeline = world.redis.pipeline(transaction=False)
    for entity in range(CALLS):
        pipeline.hset(f"features:churn:user-{entity}", "visits", str(entity + 7))
    await pipeline.execute()

    await world.tick(job, AGAIN_SECONDS + TICK_SECONDS)
    await world.tick(job)

    counted = await world.database.fetch("SELECT subject, row_count FROM DriftHour WHERE subject LIKE 'skew:%'")
    rows = {row["subject"]: row["row_count"] for row in counted}
    assert rows["skew:amount"] == CALLS
    assert "skew:visits" not in rows


async def test_a_store_that_is_away_names_nothing_and_is_counted(world: World):
    away = MemoryFeatureStore()
    away.available = False
    job = world.a_monitor(away)
    await world.tick(job)
    await world.calls(0)

    await world.tick(job)
    await world.tick(job, JUDGE_SECONDS)

    assert world.telemetry.counts["feature_skew_calls_total", "unread"] == CALLS
    assert await world.told() == []


class BrokenOnce(MemoryFeatureStore):
    """Fails once in a way that no store should."""

    has_failed = False

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("broken")
        return await super().fetch(model_name, entity_id, names, timeout_seconds)


async def test_a_comparison_that_fails_fails_one_tick_and_the_next_one_compares(world):
    job = world.a_monitor(BrokenOnce())
    await world.tick(job)
    await world.calls(0)
    with pytest.raises(RuntimeError, match="broken"):
        await world.tick(job)

    with pytest.raises(RuntimeError, match="broken"):
        await job.tick(world.epoch)
    await world.tick(job)
    await world.calls(CALLS)
    await world.tick(job)

    assert world.telemetry.counts["feature_skew_calls_total", "compared"] >= CALLS
