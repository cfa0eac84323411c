"""A connection to Redis that broke a moment ago, on the event loop that a proxy has."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from understudy.adapters.redis.cache import RedisCache
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.errors import FeaturesUnavailable


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
        await cache.get("key")
        assert break_connections(cache) == 1

        assert await cache.get("key") is None
        assert errors == [1]
        await cache.close()

    on_uvloop(work)
