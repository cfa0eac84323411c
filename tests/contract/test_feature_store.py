"""What every store of online features does: in memory, in Postgres, in Redis hashes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import orjson
import pytest
from redis.asyncio import Redis

from understudy.adapters.memory.features import MemoryFeatureStore
from understudy.adapters.postgres.features import PostgresFeatureStore
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.core.upstream.circuit_breaker import FAILURES_TO_OPEN, OPEN_SECONDS
from understudy.errors import FeaturesUnavailable
from understudy.ports.upstream.feature_store import FeatureStore

from .servers import TcpRelay, eventually

BUDGET_SECONDS = 0.05
STORED: dict[tuple[str, str], dict[str, Any]] = {
    ("churn", "cust-1"): {"tenure": 14, "plan": "pro", "ratio": 0.5, "tags": ["a", "b"], "flag": True, "none": None},
    ("fraud", "cust-1"): {"tenure": 99},
}
TABLE = """
    CREATE TABLE online_features (model_name text, entity_id text, features jsonb NOT NULL,
                                  PRIMARY KEY (model_name, entity_id))
"""


@pytest.fixture
def memory_store() -> FeatureStore:
    return MemoryFeatureStore(STORED)


@pytest.fixture
async def postgres_store(database: asyncpg.Connection, database_url: str) -> AsyncIterator[FeatureStore]:
    await database.execute(TABLE)
    rows = [(*key, orjson.dumps(features).decode()) for key, features in STORED.items()]
    await database.executemany("INSERT INTO online_features VALUES ($1, $2, $3)", rows)
    store = PostgresFeatureStore(database_url, "public.Online_Features", connections=2, timeout_seconds=2)
    yield store
    await store.close()


@pytest.fixture
async def redis_store(valkey_url: str) -> AsyncIterator[FeatureStore]:
    client = Redis.from_url(valkey_url)
    for (model_name, entity_id), features in STORED.items():
        mapping: dict[Any, Any] = {name: orjson.dumps(value).decode() for name, value in features.items()}
        await client.hset(f"features:{model_name}:{entity_id}", mapping=mapping)
    store = RedisFeatureStore(valkey_url, timeout_seconds=2)
    yield store
    await store.close()
    await client.aclose()


@pytest.fixture(params=["memory_store", "postgres_store", "redis_store"])
def store(request: pytest.FixtureRequest) -> FeatureStore:
    chosen: FeatureStore = request.getfixturevalue(request.param)
    return chosen


async def test_the_wanted_features_of_an_entity_are_read_with_their_types(store):
    features = await store.fetch("churn", "cust-1", ["tenure", "plan", "ratio", "tags", "flag"], 2)

    assert features == {"tenure": 14, "plan": "pro", "ratio": 0.5, "tags": ["a", "b"], "flag": True}


async def test_a_feature_that_the_entity_does_not_have_is_left_out(store):
    assert await store.fetch("churn", "cust-1", ["tenure", "height"], 2) == {"tenure": 14}


async def test_an_unknown_entity_has_no_features(store):
    assert await store.fetch("churn", "nobody", ["tenure"], 2) == {}


async def test_each_model_has_features_of_its_own(store):
    assert await store.fetch("fraud", "cust-1", ["tenure"], 2) == {"tenure": 99}


async def test_many_fetches_at_once_each_get_their_own_answer(store):
    wanted = [("churn", 14), ("fraud", 99)] * 20

    found = await asyncio.gather(*(store.fetch(name, "cust-1", ["tenure"], 5) for name, _ in wanted))

    assert found == [{"tenure": tenure} for _, tenure in wanted]


def a_store(kind: str, url: str) -> FeatureStore:
    """A store with the proxy's own time-out."""
    if kind == "redis":
        return RedisFeatureStore(url, timeout_seconds=BUDGET_SECONDS)
    return PostgresFeatureStore(url, "online_features", timeout_seconds=BUDGET_SECONDS)


async def fetch_or_nothing(store: FeatureStore) -> Any:
    """Fetch as the proxy does, and hang up at the same moment as the store gives up."""
    with suppress(FeaturesUnavailable, TimeoutError):
        async with asyncio.timeout(BUDGET_SECONDS):
            return await store.fetch("churn", "cust-1", ["tenure"], BUDGET_SECONDS)
    return None


both_kinds = pytest.mark.parametrize("kind", ["postgres", "redis"])
AWAY = {"postgres": "postgresql://nobody@127.0.0.1:1/nothing", "redis": "redis://127.0.0.1:1"}


@both_kinds
async def test_a_store_that_is_away_is_said_within_the_time_out(kind):
    store = a_store(kind, AWAY[kind])

    for _ in range(3 * FAILURES_TO_OPEN):
        with pytest.raises(FeaturesUnavailable):
            await store.fetch("churn", "cust-1", ["tenure"], 0.5)
    await store.close()


@pytest.mark.alone
@both_kinds
async def test_a_silent_store_costs_some_time_outs_and_then_almost_nothing(kind):
    async with TcpRelay(0, connect_seconds=3_600) as relay:
        store = a_store(kind, f"{urlsplit(AWAY[kind]).scheme}://nobody@{relay.endpoint}/0")
        started = time.monotonic()
        for _ in range(FAILURES_TO_OPEN):
            assert await fetch_or_nothing(store) is None
        closed_seconds = time.monotonic() - started

        started = time.monotonic()
        for _ in range(50):
            with pytest.raises(FeaturesUnavailable, match="circuit breaker is open"):
                await store.fetch("churn", "cust-1", ["tenure"], BUDGET_SECONDS)
        open_seconds = time.monotonic() - started

        assert closed_seconds > FAILURES_TO_OPEN * BUDGET_SECONDS * 0.9
        assert open_seconds < BUDGET_SECONDS
        await store.close()


@pytest.mark.alone
@both_kinds
async def test_a_store_to_which_connecting_takes_longer_than_any_request_waits_is_read_in_the_end(
    kind, postgres_store, redis_store, database_url, valkey_url
):
    url = urlsplit(database_url if kind == "postgres" else valkey_url)
    async with TcpRelay(url.port or 0, connect_seconds=4 * BUDGET_SECONDS) as relay:
        store = a_store(kind, url._replace(netloc=url.netloc.replace(f":{url.port}", f":{relay.port}")).geturl())

        async def is_read() -> bool:
            return bool(await fetch_or_nothing(store) == {"tenure": 14})

        assert not await is_read()
        assert await eventually(is_read, OPEN_SECONDS + 2)
        assert relay.connections <= FAILURES_TO_OPEN
        await store.close()


@pytest.mark.alone
async def test_a_store_that_stood_still_for_a_moment_is_read_again_as_soon_as_it_moves(
    postgres_store, database, database_url
):
    store = a_store("postgres", database_url)

    async def is_read() -> bool:
        return bool(await fetch_or_nothing(store) == {"tenure": 14})

    assert await eventually(is_read, 2)
    async with database.transaction():
        await database.execute("LOCK TABLE online_features")
        missed = await asyncio.gather(*(fetch_or_nothing(store) for _ in range(2 * FAILURES_TO_OPEN)))

    assert missed == [None] * len(missed)
    assert await eventually(is_read, OPEN_SECONDS / 2)
    await store.close()


@both_kinds
async def test_callers_that_wait_only_shortly_do_not_take_the_features_from_the_others(
    kind, postgres_store, redis_store
):
    store = postgres_store if kind == "postgres" else redis_store
    for _ in range(3 * FAILURES_TO_OPEN):
        with pytest.raises(FeaturesUnavailable, match="within 0 ms"):
            await store.fetch("churn", "cust-1", ["tenure"], 0)

    assert await store.fetch("churn", "cust-1", ["tenure"], 2) == {"tenure": 14}


async def test_an_entity_that_the_store_refuses_does_not_take_the_features_from_the_others(redis_store, valkey_url):
    async with Redis.from_url(valkey_url) as client:
        await client.set("features:churn:text", "no hash")

    for _ in range(2 * FAILURES_TO_OPEN):
        with pytest.raises(FeaturesUnavailable, match="ResponseError"):
            await redis_store.fetch("churn", "text", ["tenure"], 2)

    assert await redis_store.fetch("churn", "cust-1", ["tenure"], 2) == {"tenure": 14}


@both_kinds
async def test_a_closed_store_refuses_and_leaves_no_read_behind(kind):
    async with TcpRelay(0, connect_seconds=3_600) as relay:
        store = a_store(kind, f"{urlsplit(AWAY[kind]).scheme}://nobody@{relay.endpoint}/0")
        assert await fetch_or_nothing(store) is None
        running = {task for task in asyncio.all_tasks() if "FeatureReads" in repr(task)}

        await store.close()

        assert [task.done() for task in running] == [True]
        with pytest.raises(FeaturesUnavailable):
            await store.fetch("churn", "cust-1", ["tenure"], BUDGET_SECONDS)


@pytest.mark.alone
async def test_a_slow_read_is_cut_at_the_time_out_and_the_next_one_works(postgres_store, database):
    await postgres_store.fetch("churn", "cust-1", ["tenure"], 2)
    loop = asyncio.get_running_loop()
    transaction = database.transaction()
    await transaction.start()
    await database.execute("LOCK TABLE online_features")
    started = loop.time()

    with pytest.raises(FeaturesUnavailable):
        await postgres_store.fetch("churn", "cust-1", ["tenure"], 0.1)
    took = loop.time() - started
    await transaction.rollback()

    assert took < 0.4
    assert await postgres_store.fetch("churn", "cust-1", ["tenure"], 2) == {"tenure": 14}


async def test_a_table_that_is_not_there_is_a_store_that_cannot_be_read(database_url):
    store = PostgresFeatureStore(database_url, "nowhere")

    with pytest.raises(FeaturesUnavailable):
        await store.fetch("churn", "cust-1", ["tenure"], 2)
    await store.close()


@pytest.mark.parametrize("name", ["", "a b", "a;drop table x", 'a"b', "a.b.c", "1a", "a.", "x" * 64])
def test_what_is_no_name_of_a_table_is_refused_at_once(name):
    with pytest.raises(FeaturesUnavailable, match="not the name of a table"):
        PostgresFeatureStore("postgresql://127.0.0.1/x", name)
