"""One behaviour, the in-process cache and the one in Redis."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from understudy.adapters.embedded.valkey import EmbeddedValkey
from understudy.adapters.local_cache import MemoryCache
from understudy.adapters.redis.cache import RedisCache
from understudy.core.upstream.circuit_breaker import FAILURES_TO_OPEN, OPEN_SECONDS
from understudy.ports.prediction_cache import PredictionCache

TIMEOUT_SECONDS = 0.02
ENOUGH_SECONDS = 30.0
TO_LIVE_SECONDS = 2


class Errors:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def a_redis_cache(url: str, errors: Errors | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> RedisCache:
    return RedisCache(url, timeout_seconds=timeout_seconds, now=time.monotonic, on_error=errors or Errors())


@pytest.fixture(params=["memory", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[PredictionCache]:
    made: PredictionCache
    if request.param == "memory":
        made = MemoryCache(1_000_000)
    else:
        url = request.getfixturevalue("valkey_url")
        async with Redis.from_url(url) as server:
            await server.flushall()
        made = a_redis_cache(url, timeout_seconds=5)
    yield made
    await made.close()


async def until_it_has(cache: PredictionCache, key: str, wanted: bytes | None) -> None:
    """Wait until the cache has this value: a write is queued, not awaited."""
    async with asyncio.timeout(ENOUGH_SECONDS):
        while await cache.get(key) != wanted:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


async def test_what_was_set_is_got(cache):
    await cache.set("infer:1:a", b"one", 60)
    await cache.set("infer:1:b", b"two", 60)

    await until_it_has(cache, "infer:1:a", b"one")
    await until_it_has(cache, "infer:1:b", b"two")


async def test_what_was_never_set_is_none(cache):
    assert await cache.get("infer:1:nothing") is None


async def test_a_later_value_replaces_an_earlier_one(cache):
    await cache.set("infer:1:a", b"one", 60)
    await until_it_has(cache, "infer:1:a", b"one")

    await cache.set("infer:1:a", b"two", 60)

    await until_it_has(cache, "infer:1:a", b"two")


async def test_a_value_ends_with_its_time_to_live(cache):
    began = time.monotonic()
    await cache.set("infer:1:a", b"one", TO_LIVE_SECONDS)
    await until_it_has(cache, "infer:1:a", b"one")

    await until_it_has(cache, "infer:1:a", None)

    assert time.monotonic() - began > TO_LIVE_SECONDS * 0.9


async def test_callers_that_go_away_never_mix_up_the_others_values(cache):
    for n in range(200):
        await cache.set(f"infer:1:{n}", str(n).encode(), 60)
    await until_it_has(cache, "infer:1:199", b"199")

    asked = [asyncio.create_task(cache.get(f"infer:1:{n}")) for n in range(200)]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    for n, answer in enumerate(answers):
        assert answer == str(n).encode() or (n % 3 == 0 and isinstance(answer, asyncio.CancelledError))


async def test_a_value_of_another_type_is_a_miss(valkey_url):
    async with Redis.from_url(valkey_url) as server:
        await server.delete("infer:1:list")
        await server.lpush("infer:1:list", "x")
    cache = a_redis_cache(valkey_url)

    assert await cache.get("infer:1:list") is None
    await cache.close()


@pytest.mark.alone
async def test_a_redis_that_is_not_there_costs_little_and_then_nothing():
    errors = Errors()
    cache = a_redis_cache("redis://127.0.0.1:1", errors)

    started = time.monotonic()
    for n in range(50):
        assert await cache.get(f"infer:1:{n}") is None
        await cache.set(f"infer:1:{n}", b"x", 60)
    spent = time.monotonic() - started

    assert spent < 0.5
    assert FAILURES_TO_OPEN <= errors.count <= 2 * FAILURES_TO_OPEN
    await cache.close()


@pytest.mark.alone
async def test_a_frozen_redis_misses_within_its_time_and_is_used_again_afterwards():
    with EmbeddedValkey() as server:
        cache = a_redis_cache(server.url)
        await cache.set("infer:1:a", b"one", 60)
        await until_it_has(cache, "infer:1:a", b"one")
        assert server.pid is not None

        os.kill(server.pid, signal.SIGSTOP)
        longest = 0.0
        for _ in range(2 * FAILURES_TO_OPEN):
            started = time.monotonic()
            assert await cache.get("infer:1:a") is None
            longest = max(longest, time.monotonic() - started)
        os.kill(server.pid, signal.SIGCONT)
        await asyncio.sleep(OPEN_SECONDS + 0.1)

        assert longest < 2 * TIMEOUT_SECONDS + 0.05
        await until_it_has(cache, "infer:1:a", b"one")
        await cache.close()


async def test_a_full_redis_loses_the_write_and_counts_it_and_nothing_else():
    with EmbeddedValkey() as server:
        async with Redis.from_url(server.url) as admin:
            await admin.config_set("maxmemory-policy", "noeviction")
            await admin.config_set("maxmemory", "1")
        errors = Errors()
        cache = a_redis_cache(server.url, errors, timeout_seconds=5)

        await cache.set("infer:1:a", b"one", 60)
        async with asyncio.timeout(ENOUGH_SECONDS):
            while not errors.count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)

        assert await cache.get("infer:1:a") is None
        assert errors.count == 1
        await cache.close()


async def test_one_turn_of_the_loop_is_one_command(valkey_url):
    async with Redis.from_url(valkey_url) as server:
        cache = a_redis_cache(valkey_url, timeout_seconds=5)
        await cache.get("infer:1:warm")
        before = (await server.info("commandstats")).get("cmdstat_mget", {"calls": 0})["calls"]

        await asyncio.gather(*(cache.get(f"infer:1:{n}") for n in range(100)))

        after = (await server.info("commandstats"))["cmdstat_mget"]["calls"]
        assert after - before == 1
        await cache.close()
