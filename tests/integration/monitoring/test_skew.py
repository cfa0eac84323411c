"""Training/serving skew from logged calls to what people are told, in a real Postgres beside a real Valkey."""

import time
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
from understudy.adapters.postgres.features import PostgresFeatureStore
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.core.drift.subject_window import SubjectWindow
from understudy.errors import RegistryUnavailable
from understudy.monitoring import skew_job
from understudy.monitoring.skew_job import AGAIN_SECONDS, ASK_SECONDS, JUDGE_SECONDS, READ_SECONDS, SkewJob
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

    async def calls(
        self, first: int, version: int | None = None, *, is_right: bool = False, only: Sequence[str] = FEATURES
    ) -> None:
        """Log calls of the seconds that the next tick looks at."""
        rows = []
        for entity in range(first, first + CALLS):
            values, defaulted = (stored(entity), ()) if is_right else served(entity)
            values = {name: value for name, value in values.items() if name in only}
            row = a_row(entity, version_id=version or self.version)._replace(predicted_at=self.store.now - 1.0)
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


class CountingStore(RedisFeatureStore):
    """Remembers what it was asked for."""

    def __init__(self, url: str) -> None:
        super().__init__(url, timeout_seconds=2.0)
        self.asked: list[Sequence[str]] = []

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        self.asked.append(names)
        return await super().fetch(model_name, entity_id, names, timeout_seconds)


async def test_all_values_of_a_call_that_differ_are_asked_for_again_at_once(world: World, valkey_url: str):
    features = CountingStore(valkey_url)
    job = world.a_monitor(features)

    await compared(world, job, looks=1)
    await features.close()

    assert len(features.asked) == 2 * CALLS
    assert {tuple(names) for names in features.asked[CALLS:]} == {("amount", "visits")}


class FailsOnce(StoreAsOf):
    """Loses the database once, as hours of the second version are stored."""

    fails_for = 0

    async def add_hours(self, version_id: int, hours: Mapping[str, SubjectWindow], *, epoch: int) -> None:
        if version_id == self.fails_for:
            self.fails_for = 0
            raise RegistryUnavailable("lost")
        await super().add_hours(version_id, hours, epoch=epoch)


async def with_a_challenger(world: World) -> int:
    """Register a challenger with calls, and return its id."""
    challenger = await register(world.database, "churn", "7")
    await world.database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10", challenger)
    return challenger


async def test_a_database_that_is_lost_between_two_versions_counts_no_call_twice(world: World, database_url: str):
    challenger = await with_a_challenger(world)
    store = FailsOnce(database_url, timeout_seconds=10)
    store.now, store.fails_for = world.store.now, challenger
    world = world._replace(store=store)
    job = world.a_monitor()
    await world.tick(job)
    await world.calls(0)
    await world.calls(CALLS, challenger)
    await world.tick(job)

    with pytest.raises(RegistryUnavailable):
        await world.tick(job)
    await world.tick(job)

    rows = await world.database.fetch("SELECT row_count FROM DriftHour WHERE subject = 'skew:device_age'")
    assert [row["row_count"] for row in rows] == [CALLS, CALLS]


async def test_a_leader_that_takes_over_says_nothing_is_wrong_only_once_every_version_was_judged(world: World):
    challenger = await with_a_challenger(world)
    before = world.a_monitor()
    await world.tick(before)
    for look in range(4):
        await world.calls(look * CALLS)
        await world.calls(look * CALLS, challenger, is_right=True)
        await world.tick(before)
    for _ in range(4):
        await world.tick(before, JUDGE_SECONDS)
    await before.stop()

    job = world.a_monitor()
    for _ in range(4):
        await world.tick(job, JUDGE_SECONDS)

    assert [action for action, _ in await world.told()] == ["trigger"]


async def test_the_next_leader_ends_an_incident_of_calls_that_are_not_compared_any_more(world: World):
    before = world.a_monitor()
    await compared(world, before)
    await before.stop()
    await world.database.execute("UPDATE DriftHour SET hour_start = hour_start - INTERVAL '4 days'")
    job = world.a_monitor()

    await world.tick(job)
    await world.tick(job, JUDGE_SECONDS)

    assert [action for action, _ in await world.told()] == ["trigger", "resolve"]


async def test_what_differed_in_the_hour_before_the_first_one_that_counts_is_added_to_what_was_stored(world: World):
    hour = world.store.now - 300
    before = world.a_monitor()
    await compared(world, before, looks=1)
    await before.stop()
    world.store.now = hour + 3_560
    job = world.a_monitor()
    await world.tick(job)
    await world.calls(CALLS, only=["amount"])
    await world.tick(job)
    await world.tick(job)
    await world.calls(2 * CALLS)

    await world.tick(job)
    await world.tick(job)
    await world.tick(job, AGAIN_SECONDS)
    await world.tick(job)

    rows = await world.database.fetch(
        "SELECT row_count FROM DriftHour WHERE subject = 'skew:amount' ORDER BY hour_start"
    )
    assert [row["row_count"] for row in rows] == [2 * CALLS, CALLS]


async def test_rows_by_hand_and_names_that_are_too_long_stop_no_other_calls(world: World):
    job = world.a_monitor()
    await world.tick(job)
    await world.calls(0)
    long = "x" * 300
    for entity, inputs in ((1, '{"amount": 1e400}'), (2, "[1, 2]"), (3, f'{{"{long}": 1}}'), (4, "{}")):
        await world.redis.hset(f"features:churn:user-{entity}", long, "1")
        await world.database.execute(
            "UPDATE PredictionLog SET inputs = $1::jsonb WHERE entity_id = $2", inputs, f"user-{entity}"
        )

    await world.tick(job)
    await world.tick(job)

    rows = await world.database.fetch("SELECT subject, row_count FROM DriftHour")
    counted = {row["subject"]: row["row_count"] for row in rows}
    assert counted["skew:device_age"] == CALLS - 4
    assert not [subject for subject in counted if long in subject]


async def test_calls_that_had_no_turn_in_time_are_not_compared(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(skew_job, "ASK_SECONDS", 0.0)
    job = world.a_monitor()
    await world.tick(job)
    await world.calls(0)

    await world.tick(job)
    await world.tick(job)

    assert await world.database.fetchval("SELECT count(*) FROM DriftHour WHERE subject LIKE 'skew:%'") == 0


@pytest.mark.timed
async def test_a_store_that_never_answers_delays_no_tick_has_a_deadline_and_is_compared_with_once_it_answers(
    world: World, database_url: str
):
    await world.database.execute("CREATE TABLE features (model_name text, entity_id text, features jsonb)")
    await world.database.executemany(
        "INSERT INTO features VALUES ('churn', $1, $2)",
        [(f"user-{entity}", orjson.dumps(stored(entity)).decode()) for entity in range(CALLS)],
    )
    store = PostgresFeatureStore(database_url, "features", timeout_seconds=READ_SECONDS)
    job = world.a_monitor(store)
    await world.tick(job)
    locked = await asyncpg.connect(database_url)
    await locked.execute("BEGIN")
    await locked.execute("LOCK TABLE features IN ACCESS EXCLUSIVE MODE")
    await world.calls(0, is_right=True)
    world.store.now += TICK_SECONDS

    began = time.monotonic()
    await job.tick(world.epoch)
    tick_seconds = time.monotonic() - began
    await world.tick(job)  # while it hangs
    hanging_seconds = time.monotonic() - began
    unread = world.telemetry.counts["feature_skew_calls_total", "unread"]
    await locked.execute("ROLLBACK")
    await locked.close()
    deadline = time.monotonic() + 30
    while not await world.database.fetchval("SELECT count(*) FROM DriftHour WHERE subject LIKE 'skew:%'"):
        assert time.monotonic() < deadline
        await world.calls(0, is_right=True)
        await world.tick(job)
    await store.close()

    assert tick_seconds < READ_SECONDS
    assert hanging_seconds < ASK_SECONDS + 2 * READ_SECONDS
    assert unread >= CALLS
    assert await world.told() == []
