"""A connection to Redis that broke a moment ago, on the event loop that a proxy has."""

import asyncio
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis
from traffic.cached_values import value_in

from understudy.adapters.redis.cache import RedisCache
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.core.schema.cache_mac import CacheMac, Rejected
from understudy.errors import FeaturesUnavailable

LONG_BYTES = 16_000_000
"""Of a value that no proxy wrote."""


def on_uvloop(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def break_connections(client: Any) -> int:
    """Break what the pool has, behind its back: a broken connection that it knows of it would replace."""
    pool = client._redis.connection_pool  # noqa: SLF001 - there is no public way to it
    connections = [one for one in pool._available_connections if one is not None]  # noqa: SLF001
    for connection in connections:
        connection._writer.transport.abort()  # noqa: SLF001
    return len(connections)


def test_a_feature_store_whose_connection_just_broke_is_away_and_no_defect(valkey_url: str):
    async def work() -> None:
        store = RedisFeatureStore(valkey_url, timeout_seconds=2)
        await store.fetch("visits", "a", ["age"], 2)
        assert break_connections(store) == 1

        with pytest.raises(FeaturesUnavailable):
            await store.fetch("visits", "a", ["age"], 2)
        assert await store.fetch("visits", "a", ["age"], 2) == {}
        await store.close()

    on_uvloop(work)


def test_a_cache_whose_connection_just_broke_has_no_answer_and_counts_an_error(valkey_url: str):
    errors: list[int] = []

    async def work() -> None:
        cache = RedisCache(
            valkey_url,
            timeout_seconds=2,
            now=time.monotonic,
            on_error=lambda: errors.append(1),
            on_rejected=lambda _: None,
        )
        cache.use_secret(bytes(32))
        await value_in(cache, "key")
        assert break_connections(cache) == 1

        assert await value_in(cache, "key") is None
        assert errors == [1]
        await cache.close()

    on_uvloop(work)


async def peak_bytes_of(reading: Awaitable[Any]) -> int:
    """Return the most memory that Python allocated beside what it had."""
    tracemalloc.start()
    try:
        await reading
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("protocol", ["2", "3"])
async def test_a_long_value_at_a_key_of_the_cache_is_not_read_into_memory(valkey_url: str, protocol: str):
    rejected: list[Rejected] = []
    cache = RedisCache(
        f"{valkey_url}?protocol={protocol}",
        timeout_seconds=5,
        now=time.monotonic,
        on_error=lambda: None,
        on_rejected=rejected.append,
    )
    cache.use_secret(bytes(32))
    async with Redis.from_url(valkey_url) as admin:
        await value_in(cache, "another")  # the connection is there
        await admin.setrange("long" + CacheMac(bytes(32)).suffix, LONG_BYTES, b"x")

        peak = await peak_bytes_of(value_in(cache, "long"))

        assert peak < LONG_BYTES / 4
        assert rejected == [Rejected.INVALID_MAC]
        assert await value_in(cache, "another") is None  # by a connection of its own
        await admin.delete("long" + CacheMac(bytes(32)).suffix)
    await cache.close()


async def test_a_long_value_among_features_is_refused_and_the_store_goes_on(valkey_url: str):
    store = RedisFeatureStore(valkey_url, timeout_seconds=5)
    async with Redis.from_url(valkey_url) as admin:
        await admin.hset("features:visits:long", "age", b"1" * LONG_BYTES)
        await admin.hset("features:visits:short", "age", "1")

        async def refused() -> None:
            with pytest.raises(FeaturesUnavailable):
                await store.fetch("visits", "long", ["age"], 5)

        assert await store.fetch("visits", "short", ["age"], 5) == {"age": 1}
        assert await peak_bytes_of(refused()) < LONG_BYTES / 4
        for _ in range(6):  # one entity's value opens no circuit breaker
            await refused()
        assert await store.fetch("visits", "short", ["age"], 5) == {"age": 1}
        await admin.delete("features:visits:long", "features:visits:short")
    await store.close()
