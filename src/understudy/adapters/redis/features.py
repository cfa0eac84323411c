"""Online features as Redis hashes: ``features:{model}:{entity_id}``, each field a JSON value."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from redis.exceptions import ResponseError

from understudy.adapters.feature_reads import PATIENCE_SECONDS, FeatureReads
from understudy.adapters.redis.connection import LOST, redis_client

CONNECTIONS = 32
MAX_VALUE_BYTES = 4_194_304
"""Of one stored feature: as long as all features of a call may be that its caller sends (a rank call's body)."""


class RedisFeatureStore:
    """Implements ``ports.FeatureStore``; one HMGET a fetch.

    Args:
        url: ``redis://`` or ``rediss://``.
        timeout_seconds: When a read counts as failed, whatever its caller's timeout; also the longest wait for a
            connection.
    """

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        self._redis = redis_client(
            url,
            connections=CONNECTIONS,
            turn_seconds=timeout_seconds,
            answer_seconds=PATIENCE_SECONDS,
            max_value_bytes=MAX_VALUE_BYTES,
        )
        self._reads = FeatureReads(timeout_seconds, failures=LOST, refusals=(ResponseError,))

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """Return the fields that the entity's hash has; a value that is no JSON counts as text."""
        read = partial(self._read, f"features:{model_name}:{entity_id}", list(names))
        values = await self._reads.run(read, timeout_seconds)
        return {name: _decoded(value) for name, value in zip(names, values, strict=True) if value is not None}

    async def close(self) -> None:
        """Close the connections; reads in progress end."""
        await self._reads.close()
        await self._redis.aclose(close_connection_pool=True)

    async def _read(self, key: str, names: list[str]) -> Sequence[bytes | str | None]:
        return await self._redis.hmget(key, names)


def _decoded(value: bytes | str) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.decode(errors="replace") if isinstance(value, bytes) else value
