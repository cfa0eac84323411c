"""What ``understudy doctor`` asks a Redis: whether it answers, how fast, and what it evicts when it is full."""

import asyncio
import time
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError

from understudy.core.connection_urls import without_password


class RedisCheckup(NamedTuple):
    """What was found; ``problem`` is empty when it answers."""

    problem: str
    version: str = ""
    round_trip_seconds: float = 0.0
    eviction_policy: str = ""
    is_refusal: bool = False
    """Whether the server answered, and refused the login."""


async def examine_redis(redis_url: str, *, timeout_seconds: float = 2.0) -> RedisCheckup:
    """Ask a Redis or Valkey; one that is unavailable raises nothing."""
    once = Retry(NoBackoff(), 0)  # the vendor's own retries, even of a wrong password, take longer than the time-out
    try:
        async with asyncio.timeout(timeout_seconds), Redis.from_url(redis_url, retry=once) as client:
            await client.ping()
            began = time.monotonic()
            await client.ping()
            round_trip_seconds = time.monotonic() - began
            server, memory = await client.info("server"), await client.info("memory")
    except AuthenticationError as problem:
        return RedisCheckup(f"{_server_of(redis_url)} was reached, and refused the login: {problem}", is_refusal=True)
    except (ValueError, TypeError):
        return RedisCheckup("its URL cannot be read by the client")  # whose error may repeat a part of it
    except (RedisError, OSError) as problem:
        return RedisCheckup(str(problem) or type(problem).__name__)
    version = str(server.get("valkey_version") or server.get("redis_version", "unknown"))
    return RedisCheckup("", version, round_trip_seconds, str(memory.get("maxmemory_policy", "unknown")))


def _server_of(redis_url: str) -> str:
    """Return the server and the user of the URL, without the password."""
    parts = urlsplit(without_password(redis_url))
    account, _, place = parts.netloc.rpartition("@")
    user = unquote(account) or parse_qs(parts.query).get("username", [""])[0]
    return f"{place or parts.path}{f' as {user}' if user else ''}"
