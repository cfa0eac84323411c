"""One behaviour, the in-process cache and the one in Redis."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from redis.asyncio import Redis
from traffic.cached_values import value_in

from understudy.adapters.embedded.valkey import EmbeddedValkey
from understudy.adapters.local_cache import MemoryCache
from understudy.adapters.redis.cache import RedisCache
from understudy.core.schema.cache_mac import CacheMac, Rejected
from understudy.core.upstream.circuit_breaker import FAILURES_TO_OPEN, OPEN_SECONDS
from understudy.ports.upstream.prediction_cache import PredictionCache

TIMEOUT_SECONDS = 0.02
ENOUGH_SECONDS = 30.0
TO_LIVE_SECONDS = 2
SECRET = b"what-every-proxy-has-and-redis-has-not"


class Errors:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def a_redis_cache(
    url: str,
    errors: Errors | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    *,
    secret: bytes | None = SECRET,
    rejected: list[Rejected] | None = None,
) -> RedisCache:
    cache = RedisCache(
        url,
        timeout_seconds=timeout_seconds,
        now=time.monotonic,
        on_error=errors or Errors(),
        on_rejected=(rejected if rejected is not None else []).append,
    )
    cache.use_secret(secret)
    return cache


@pytest.fixture
def empty_valkey_url(valkey_url: str) -> str:
    with redis.Redis.from_url(valkey_url) as server:
        server.flushall()
    return valkey_url


@pytest.fixture(params=["memory", "redis"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[PredictionCache]:
    made: PredictionCache
    if request.param == "memory":
        made = MemoryCache(1_000_000)
    else:
        url = request.getfixturevalue("empty_valkey_url")
        made = a_redis_cache(url, timeout_seconds=5)
    yield made
    await made.close()


async def until_it_has(cache: PredictionCache, key: str, wanted: bytes | None) -> None:
    """Wait until the cache has this value: a write is queued, not awaited."""
    async with asyncio.timeout(ENOUGH_SECONDS):
        while await value_in(cache, key) != wanted:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)


async def test_what_was_set_is_got(cache):
    await cache.set("infer:1:a", b"one", 60)
    await cache.set("infer:1:b", b"two", 60)

    await until_it_has(cache, "infer:1:a", b"one")
    await until_it_has(cache, "infer:1:b", b"two")


async def test_what_was_never_set_is_none(cache):
    assert await value_in(cache, "infer:1:nothing") is None


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

    asked = [asyncio.create_task(value_in(cache, f"infer:1:{n}")) for n in range(200)]
    await asyncio.sleep(0)
    for task in asked[::3]:
        task.cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    for n, answer in enumerate(answers):
        assert answer == str(n).encode() or (n % 3 == 0 and isinstance(answer, asyncio.CancelledError))


async def test_a_value_of_another_type_is_a_miss(valkey_url):
    async with Redis.from_url(valkey_url) as server:
        await server.delete(stored_as("infer:1:list"))
        await server.lpush(stored_as("infer:1:list"), "x")
    cache = a_redis_cache(valkey_url)

    assert await value_in(cache, "infer:1:list") is None
    await cache.close()


def stored_as(key: str) -> str:
    """Return what Redis calls this value."""
    return key + CacheMac(SECRET).suffix


BEFORE = b'{"version_id":1,"answer_digest":"0011223344556677","input_hash":"a","prediction":{"score":0.31}}'
FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "one bit of the score": lambda sealed: sealed.replace(b"0.31", b"0.39"),
    "one bit of the tag": lambda sealed: bytes([sealed[0] ^ 1]) + sealed[1:],
    "a later expiry": lambda sealed: sealed[:16] + (2**40).to_bytes(8) + sealed[24:],
    "its last byte cut off": lambda sealed: sealed[:-1],
    "a byte more": lambda sealed: sealed + b" ",
    "the tag alone": lambda sealed: sealed[:16],
    "the bare value, as the release before wrote it": lambda _: BEFORE,
    "nothing": lambda _: b"",
    "many zeros": lambda _: bytes(4_096),
    "more than a value may have": lambda sealed: sealed + bytes(1_048_577),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_value_that_was_changed_in_redis_is_a_miss_and_counted(empty_valkey_url, forgery):
    rejected: list[Rejected] = []
    cache = a_redis_cache(empty_valkey_url, timeout_seconds=5, rejected=rejected)
    await cache.set("infer:1:a", BEFORE, 60)
    await until_it_has(cache, "infer:1:a", BEFORE)
    async with Redis.from_url(empty_valkey_url) as server:
        sealed: Any = await server.get(stored_as("infer:1:a"))
        await server.set(stored_as("infer:1:a"), FORGERIES[forgery](sealed))

    found = await value_in(cache, "infer:1:a")

    assert found is None
    assert rejected == [Rejected.INVALID_MAC]
    await cache.close()


async def test_the_value_of_another_key_is_a_miss(empty_valkey_url):
    rejected: list[Rejected] = []
    cache = a_redis_cache(empty_valkey_url, timeout_seconds=5, rejected=rejected)
    await cache.set("infer:1:a", b"one", 60)
    await cache.set("infer:1:b", b"two", 60)
    await until_it_has(cache, "infer:1:b", b"two")
    async with Redis.from_url(empty_valkey_url) as server:
        await server.rename(stored_as("infer:1:b"), stored_as("infer:1:a"))

    found = await value_in(cache, "infer:1:a")

    assert found is None
    assert rejected == [Rejected.INVALID_MAC]
    await cache.close()


async def test_a_value_kept_beyond_its_time_to_live_is_a_miss(empty_valkey_url):
    rejected: list[Rejected] = []
    cache = a_redis_cache(empty_valkey_url, timeout_seconds=5, rejected=rejected)
    await cache.set("infer:1:a", b"one", TO_LIVE_SECONDS)
    await until_it_has(cache, "infer:1:a", b"one")
    async with Redis.from_url(empty_valkey_url) as server:
        await server.persist(stored_as("infer:1:a"))

    await until_it_has(cache, "infer:1:a", None)

    assert rejected == [Rejected.EXPIRED]
    await cache.close()


async def test_without_a_secret_nothing_is_read_and_nothing_written(empty_valkey_url):
    async with Redis.from_url(empty_valkey_url) as server:
        cache = a_redis_cache(empty_valkey_url, timeout_seconds=5)
        await cache.set("infer:1:a", b"one", 60)
        await until_it_has(cache, "infer:1:a", b"one")
        commands = (await server.info("stats"))["total_commands_processed"]

        cache.use_secret(None)
        found = await value_in(cache, "infer:1:a")
        await cache.set("infer:1:b", b"two", 60)
        await asyncio.sleep(0)

        assert found is None
        assert (await server.info("stats"))["total_commands_processed"] == commands + 1
        assert await server.dbsize() == 1
        await cache.close()


async def test_proxies_with_two_secrets_share_a_redis_and_only_miss_each_others_values(empty_valkey_url):
    rejected: list[Rejected] = []
    caches = [
        a_redis_cache(empty_valkey_url, None, 5, secret=secret, rejected=rejected) for secret in (SECRET, SECRET[::-1])
    ]
    await caches[0].set("infer:1:a", b"one", 60)
    await until_it_has(caches[0], "infer:1:a", b"one")

    found = await value_in(caches[1], "infer:1:a")
    await caches[1].set("infer:1:a", b"two", 60)
    await until_it_has(caches[1], "infer:1:a", b"two")

    assert found is None
    assert await value_in(caches[0], "infer:1:a") == b"one"
    assert rejected == []
    for cache in caches:
        await cache.close()


async def test_a_proxy_of_the_release_before_and_one_of_this_share_a_redis_and_only_miss(empty_valkey_url):
    rejected: list[Rejected] = []
    cache = a_redis_cache(empty_valkey_url, timeout_seconds=5, rejected=rejected)
    async with Redis.from_url(empty_valkey_url) as proxy_before:
        await proxy_before.set("infer:1:a", BEFORE, ex=60)

        assert await value_in(cache, "infer:1:a") is None
        await cache.set("infer:1:a", b"one", 60)
        await until_it_has(cache, "infer:1:a", b"one")

        assert await proxy_before.get("infer:1:a") == BEFORE
    assert rejected == []
    await cache.close()


async def answer_badly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
    """Answer each MGET like this, and everything else with OK."""
    with suppress(ConnectionError):
        while data := await reader.read(4_096):
            writer.write(answer if b"MGET" in data else b"+OK\r\n" * data.count(b"*"))
    writer.close()


@pytest.mark.parametrize(
    "answer", [b":7\r\n", b"*0\r\n", b"*1\r\n:7\r\n", b"*2\r\n$-1\r\n$-1\r\n", b"+OK\r\n", b"*-1\r\n"]
)
async def test_a_server_that_answers_what_no_redis_does_is_a_miss_and_an_error(answer):
    errors = Errors()
    server = await asyncio.start_server(partial(answer_badly, answer=answer), "127.0.0.1", 0)
    cache = a_redis_cache(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", errors, timeout_seconds=5)

    found = await value_in(cache, "infer:1:a")

    assert found is None
    assert errors.count == 1
    await cache.close()
    server.close()


@pytest.mark.alone
async def test_a_redis_that_is_not_there_costs_little_and_then_nothing():
    errors = Errors()
    cache = a_redis_cache("redis://127.0.0.1:1", errors)

    started = time.monotonic()
    for n in range(50):
        assert await value_in(cache, f"infer:1:{n}") is None
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
            assert await value_in(cache, "infer:1:a") is None
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

        assert await value_in(cache, "infer:1:a") is None
        assert errors.count == 1
        await cache.close()


async def test_one_turn_of_the_loop_is_one_command(empty_valkey_url):
    async with Redis.from_url(empty_valkey_url) as server:
        cache = a_redis_cache(empty_valkey_url, timeout_seconds=5)
        await value_in(cache, "infer:1:warm")
        before = (await server.info("commandstats")).get("cmdstat_mget", {"calls": 0})["calls"]

        await asyncio.gather(*(value_in(cache, f"infer:1:{n}") for n in range(100)))

        after = (await server.info("commandstats"))["cmdstat_mget"]["calls"]
        assert after - before == 1
        await cache.close()


@pytest.mark.parametrize("turns", range(3))
async def test_who_waits_for_a_cache_that_is_closed_has_a_miss(turns: int):
    cache = a_redis_cache("redis://127.0.0.1:1", timeout_seconds=ENOUGH_SECONDS)
    reading = asyncio.ensure_future(value_in(cache, "key"))
    for _ in range(1 + turns):
        await asyncio.sleep(0)

    await cache.close()

    async with asyncio.timeout(ENOUGH_SECONDS):
        assert await reading is None
        assert await value_in(cache, "key") is None
