"""Online features as Redis hashes: ``features:{model}:{entity_id}``, each field a JSON value."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from understudy.errors import FeaturesUnavailable


class RedisFeatureStore:
    """Implements ``ports.FeatureStore``; one HMGET a fetch."""

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=32,
            timeout=timeout_seconds,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=max(timeout_seconds, 0.05),
            retry=Retry(NoBackoff(), 0),
        )
        self._redis: Redis = Redis(connection_pool=pool)

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """Return the fields that the entity's hash has; a value that is no JSON counts as text."""
        try:
            async with asyncio.timeout(timeout_seconds):
                values = await self._redis.hmget(f"features:{model_name}:{entity_id}", list(names))
        except (RedisError, OSError, TimeoutError) as problem:
            raise FeaturesUnavailable(f"the feature store failed: {type(problem).__name__}") from problem
        return {name: _decoded(value) for name, value in zip(names, values, strict=True) if value is not None}

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose(close_connection_pool=True)


def _decoded(value: bytes | str) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.decode(errors="replace") if isinstance(value, bytes) else value
