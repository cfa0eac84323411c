"""What ``understudy doctor`` asks a Redis: whether it answers, how fast, and what it forgets first when it is full."""

import asyncio
import time
from typing import NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError


class RedisCheckup(NamedTuple):
    """What was found; ``problem`` is empty when it answers."""

    problem: str
    version: str = ""
    round_trip_seconds: float = 0.0
    eviction_policy: str = ""


async def examine_redis(redis_url: str, *, timeout_seconds: float = 2.0) -> RedisCheckup:
    """Ask a Redis or Valkey; never raises for one that is away."""
    try:
        async with asyncio.timeout(timeout_seconds), Redis.from_url(redis_url) as client:
            await client.ping()
            began = time.monotonic()
            await client.ping()
            round_trip_seconds = time.monotonic() - began
            server, memory = await client.info("server"), await client.info("memory")
    except (RedisError, OSError, ValueError) as problem:
        return RedisCheckup(str(problem) or type(problem).__name__)
    version = str(server.get("valkey_version") or server.get("redis_version", "unknown"))
    return RedisCheckup("", version, round_trip_seconds, str(memory.get("maxmemory_policy", "unknown")))
