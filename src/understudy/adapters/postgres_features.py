"""Online features in Postgres: a table or view with columns ``model_name``, ``entity_id``, ``features`` (JSONB)."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from understudy.adapters.postgres_connection import VENDOR_ERRORS
from understudy.errors import FeaturesUnavailable

MAX_CONNECTIONS = 4
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


class PostgresFeatureStore:
    """Implements ``ports.FeatureStore``; the pool is opened by the first fetch.

    Raises:
        ValueError: ``table`` is no plain identifier, with or without a schema.
    """

    def __init__(self, database_url: str, table: str) -> None:
        if not _TABLE.fullmatch(table):
            raise ValueError(f"UNDERSTUDY_FEATURE_TABLE: {table!r} is not a table's name, with or without its schema")
        self._url = database_url
        self._query = f"SELECT features::text FROM {table} WHERE model_name = $1 AND entity_id = $2"  # noqa: S608 - checked
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """See :meth:`understudy.ports.FeatureStore.fetch`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                pool = await self._opened()
                text = await pool.fetchval(self._query, model_name, entity_id)
        except (*VENDOR_ERRORS, TimeoutError) as problem:
            raise FeaturesUnavailable(f"the feature store failed: {type(problem).__name__}") from problem
        stored = orjson.loads(text) if text is not None else {}
        return {name: stored[name] for name in names if name in stored}

    async def close(self) -> None:
        """Drop the connections."""
        if self._pool is not None:
            self._pool.terminate()

    async def _opened(self) -> asyncpg.Pool:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url, min_size=0, max_size=MAX_CONNECTIONS, timeout=1, command_timeout=1
                )
            return self._pool
