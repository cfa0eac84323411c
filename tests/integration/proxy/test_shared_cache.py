"""What is in Redis is not believed: a real proxy, a real Redis whose values are changed, and the secret in Postgres."""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest
import redis
from e2e.stack import PREDICT_BODIES, VISITS, a_stack, register

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.valkey import EmbeddedValkey
from understudy.adapters.postgres.registry.policy import PostgresPolicySource

ENOUGH_SECONDS = 30
REJECTED = 'cache_rejected_total{reason="invalid_mac"}'


def predict(port: int) -> dict[str, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{VISITS}", PREDICT_BODIES[0])
    with urllib.request.urlopen(request, timeout=20) as answer:
        return {**orjson.loads(answer.read()), "is_hit": answer.headers["cache-status"] == "understudy; hit"}


def metric(port: int, line: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
        lines = page.read().decode().splitlines()
    return next(float(one.rpartition(" ")[2]) for one in lines if one.startswith(line))


def predict_until(port: int, *, is_hit: bool) -> dict[str, Any]:
    """Ask until an answer is, or is not, from the cache: what Redis does not say in time is computed."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while (answer := predict(port))["is_hit"] != is_hit:
        assert time.monotonic() < deadline, answer
    return answer


def predict_with(client: redis.Redis, name: bytes, value: bytes, port: int, metrics_port: int) -> dict[str, Any]:
    """Ask with this value in Redis until the proxy has read it and refused it, and return that answer."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while True:
        client.set(name, value)
        answer = predict(port)
        if answer["is_hit"] or metric(metrics_port, REJECTED):
            return answer
        assert time.monotonic() < deadline, answer


async def the_name(client: redis.Redis, port: int, but_not: bytes = b"") -> bytes:
    """Ask until the answer is cached, under another name than this one, and return its name in Redis."""
    deadline = time.monotonic() + ENOUGH_SECONDS
    while time.monotonic() < deadline:
        await asyncio.to_thread(predict, port)
        names = [bytes(name) for name in client.scan_iter("infer:*") if name != but_not]
        if names:
            return names[0]
        await asyncio.sleep(0.05)
    raise AssertionError("nothing was cached")


async def test_a_score_that_was_changed_in_redis_within_its_range_is_not_served(
    tmp_path: Path, database: asyncpg.Connection, database_url: str, model_port: Callable[[str], int]
):
    version = await register(database_url, 1, [model_port("visits:1")])
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    with EmbeddedValkey() as valkey, a_stack(tmp_path, database_url, valkey.url) as stack:
        metrics_port = free_port()
        port = await asyncio.to_thread(stack.start_proxy, memory_cache_bytes=0, metrics_port=metrics_port)
        client = redis.Redis.from_url(valkey.url)
        computed = await asyncio.to_thread(predict, port)
        name = await the_name(client, port)
        from_redis = await asyncio.to_thread(predict_until, port, is_hit=True)
        sealed = bytes(await asyncio.to_thread(client.get, name))  # type: ignore[arg-type]  # nothing is decoded
        digit = sealed.index(b'"score":0.') + 10
        forged = sealed[:digit] + (b"1" if sealed[digit : digit + 1] != b"1" else b"2") + sealed[digit + 1 :]

        after_forgery = await asyncio.to_thread(predict_with, client, name, forged, port, metrics_port)
        rejected = metric(metrics_port, REJECTED)
        client.set(name, sealed)
        await database.execute("UPDATE CacheSecret SET secret = decode(repeat('00', 32), 'hex')")
        renamed = await the_name(client, port, name)
        client.close()
        is_off = metric(metrics_port, "shared_cache_off")

    assert not after_forgery["is_hit"]
    assert after_forgery["prediction"] == from_redis["prediction"] == computed["prediction"]
    assert rejected >= 1
    assert is_off == 0
    assert renamed.startswith(name.rpartition(b":")[0])
    assert bytes(32).hex() not in (tmp_path / "proxy.log").read_text()


@pytest.fixture
async def proxys_url(database: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    """The URL of a login that has the rights of proxies and nothing else."""
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_proxy")
    _, _, place = database_url.rpartition("@")
    yield f"postgresql://{name}:secret@{place}"
    await database.execute(f"DROP ROLE {name}")


async def test_a_proxys_login_may_read_the_secret_and_not_change_it(database, proxys_url):
    secret = await database.fetchval("SELECT secret FROM CacheSecret")
    source = PostgresPolicySource(proxys_url, timeout_seconds=20, reads_cache_secret=True)
    session = await asyncpg.connect(proxys_url, timeout=10)

    document = await source.load()
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await session.execute("UPDATE CacheSecret SET secret = decode(repeat('00', 32), 'hex')")

    assert document["cache_secret"] == secret.hex()
    await session.close()
    await source.close()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE CacheSecret RENAME TO NotThereYet",
        "REVOKE SELECT (secret) ON CacheSecret FROM understudy_proxy",
        "DELETE FROM CacheSecret",
    ],
)
async def test_policies_are_read_where_the_secret_cannot_be(database, proxys_url, statement):
    await database.execute(statement)
    source = PostgresPolicySource(proxys_url, timeout_seconds=20, reads_cache_secret=True)

    document = await source.load()

    assert document["cache_secret"] is None
    assert document["models"] == {}
    await source.close()


@pytest.mark.timed
async def test_policies_wait_for_a_secret_that_is_locked_once_and_then_no_more(database, database_url):
    source = PostgresPolicySource(database_url, timeout_seconds=1, reads_cache_secret=True)
    async with database.transaction():
        await database.execute("LOCK TABLE CacheSecret IN ACCESS EXCLUSIVE MODE")
        whole = await source.load()
        named = await source.load(["churn"])
        told = await source.changed_since_last_poll()
    again = await source.load(told)

    assert "cache_secret" not in whole
    assert "cache_secret" not in named
    assert told == [""]
    assert len(bytes.fromhex(again["cache_secret"])) == 32
    await source.close()
