"""Online features as rows of a Postgres table or view with ``model_name``, ``entity_id`` and ``features`` (JSONB)."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from understudy.adapters.postgres_connection import VENDOR_ERRORS, connect
from understudy.errors import FeaturesUnavailable, UnderstudyError

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
CONNECT_SECONDS = 1.0


class PostgresFeatureStore:
    """Implements ``ports.FeatureStore``; one indexed read a fetch.

    At most ``connections`` reads run at once; the others wait inside their own time-out. A connection whose read failed
    or was cut short is dropped, never used again. While Postgres refuses connections, a new attempt is made at most
    every tenth of a second, so that requests fail at once instead of queueing behind attempts.
    """

    def __init__(self, database_url: str, table: str, *, connections: int = 8) -> None:
        """Prepare; no connection is opened before the first fetch.

        Args:
            database_url: Of a role that may read the table.
            table: Its name, or schema and name: ``features.online``. Unquoted, so in lower case.
            connections: The most that are open at once.

        Raises:
            FeaturesUnavailable: ``table`` is not a name.
        """
        parts = table.split(".")
        if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):  # noqa: PLR2004 - schema and name
            raise FeaturesUnavailable(f"{table!r} is not the name of a table", hint="Set UNDERSTUDY_FEATURE_TABLE.")
        name = ".".join(f'"{part.lower()}"' for part in parts)
        # Only the wanted features leave the database. The name was checked above.
        self._query = (
            "SELECT jsonb_object_agg(k, features -> k) FILTER (WHERE features ? k)::text "  # noqa: S608
            f"FROM {name}, unnest($3::text[]) AS k WHERE model_name = $1 AND entity_id = $2"
        )
        self._url = database_url
        self._idle: list[asyncpg.Connection] = []
        self._turns = asyncio.Semaphore(connections)
        self._refused_until = 0.0
        self._closed = False

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """See :class:`understudy.ports.FeatureStore`."""
        try:
            async with asyncio.timeout(timeout_seconds), self._turns:
                text = await self._read(model_name, entity_id, list(names))
        except FeaturesUnavailable:
            raise
        except (*VENDOR_ERRORS, UnderstudyError) as problem:
            raise FeaturesUnavailable(f"the feature store failed: {type(problem).__name__}") from problem
        if text is None:
            return {}
        try:
            features: Mapping[str, Any] = orjson.loads(text)
        except orjson.JSONDecodeError as problem:  # such as 1e400, which JSONB holds and no float does
            raise FeaturesUnavailable("a stored feature is a number that no float can hold") from problem
        return features

    async def close(self) -> None:
        """Drop the connections; fetches in progress fail or finish."""
        self._closed = True
        while self._idle:
            self._idle.pop().terminate()

    async def _read(self, *arguments: Any) -> str | None:
        connection = await self._connected()
        try:
            text: str | None = await connection.fetchval(self._query, *arguments)
        except BaseException:
            # Not returned: after a time-out or an error its state is unknown.
            connection.terminate()
            raise
        if self._closed:
            connection.terminate()
        else:
            self._idle.append(connection)
        return text

    async def _connected(self) -> asyncpg.Connection:
        if self._closed:
            raise FeaturesUnavailable("the feature store is closed")
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        now = asyncio.get_running_loop().time()
        if now < self._refused_until:
            raise FeaturesUnavailable("the feature store's Postgres cannot be reached")
        try:
            return await connect(self._url, timeout_seconds=CONNECT_SECONDS, application_name="understudy-features")
        except UnderstudyError:
            self._refused_until = asyncio.get_running_loop().time() + 0.1
            raise
