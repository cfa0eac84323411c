"""What every store of online features does: in memory, in Postgres, in Redis hashes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import orjson
import pytest
from redis.asyncio import Redis

from understudy.adapters.memory_registry import MemoryFeatureStore
from understudy.adapters.postgres_features import PostgresFeatureStore
from understudy.adapters.redis_features import RedisFeatureStore
from understudy.errors import FeaturesUnavailable
from understudy.ports import FeatureStore

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
    store = PostgresFeatureStore(database_url, "public.Online_Features", connections=2)
    yield store
    await store.close()


@pytest.fixture
async def redis_store(valkey_url: str) -> AsyncIterator[FeatureStore]:
    client = Redis.from_url(valkey_url)
    for (model_name, entity_id), features in STORED.items():
        mapping: dict[Any, Any] = {name: orjson.dumps(value).decode() for name, value in features.items()}
        await client.hset(f"features:{model_name}:{entity_id}", mapping=mapping)
    store = RedisFeatureStore(valkey_url, timeout_seconds=1)
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


async def test_a_postgres_that_is_away_is_said_within_the_time_out():
    store = PostgresFeatureStore("postgresql://nobody@127.0.0.1:1/nothing", "features")

    for _ in range(3):
        with pytest.raises(FeaturesUnavailable):
            await store.fetch("churn", "cust-1", ["tenure"], 0.5)
    await store.close()


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
