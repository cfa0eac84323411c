"""Online features as rows of a Postgres table or view with ``model_name``, ``entity_id`` and ``features`` (JSONB)."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg
import orjson

from understudy.adapters.feature_reads import FeatureReads
from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS, connect
from understudy.errors import FeaturesUnavailable, RegistryError

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")
CONNECT_SECONDS = 1.0


class PostgresFeatureStore:
    """Implements ``ports.FeatureStore``; one indexed read a fetch.

    At most ``connections`` reads run at once; the others wait for their turn. A connection whose read failed or was cut
    short is dropped, never used again.
    """

    def __init__(self, database_url: str, table: str, *, connections: int = 8, timeout_seconds: float = 0.05) -> None:
        """Prepare; no connection is opened before the first fetch.

        Args:
            database_url: Of a role that may read the table.
            table: Its name, or schema and name: ``features.online``. Unquoted, so in lower case.
            connections: The most that are open at once.
            timeout_seconds: When a read counts as failed, whatever its caller's timeout; also the longest wait for a
                turn.

        Raises:
            FeaturesUnavailable: ``table`` is not a name.
        """
        parts = table.split(".")
        if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):  # noqa: PLR2004 - schema and name
            raise FeaturesUnavailable(f"{table!r} is not the name of a table", hint="Set UNDERSTUDY_FEATURE_TABLE.")
        name = ".".join(f'"{part.lower()}"' for part in parts)
        # Only the wanted features leave the database. The name was checked above.
        self._query = (
            "SELECT jsonb_object_agg(k, features -> k) FILTER (WHERE features ? k)::text "  # noqa: S608 - as said above
            f"FROM {name}, unnest($3::text[]) AS k WHERE model_name = $1 AND entity_id = $2"
        )
        self._url = database_url
        self._idle: list[asyncpg.Connection] = []
        self._turns = asyncio.Semaphore(connections)
        self._timeout_seconds = timeout_seconds
        self._reads = FeatureReads(
            timeout_seconds, failures=(*VENDOR_ERRORS, RegistryError), refusals=(asyncpg.DataError,)
        )
        self._closed = False

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        if self._closed:
            raise FeaturesUnavailable("the feature store is closed")
        text = await self._reads.run(partial(self._read, model_name, entity_id, list(names)), timeout_seconds)
        if text is None:
            return {}
        try:
            features: Mapping[str, Any] = orjson.loads(text)
        except orjson.JSONDecodeError as problem:  # such as 1e400, which JSONB holds and no float does
            raise FeaturesUnavailable("a stored feature is a number that no float can hold") from problem
        return features

    async def close(self) -> None:
        """Drop the connections; reads in progress end."""
        self._closed = True
        await self._reads.close()
        while self._idle:
            self._idle.pop().terminate()

    async def _read(self, *arguments: Any) -> str | None:
        async with asyncio.timeout(self._timeout_seconds):
            await self._turns.acquire()
        try:
            return await self._query_with(await self._connection(), *arguments)
        finally:
            self._turns.release()

    async def _query_with(self, connection: asyncpg.Connection, *arguments: Any) -> str | None:
        try:
            text: str | None = await connection.fetchval(self._query, *arguments)
        except BaseException:
            # Not returned: after a time-out or an error its state is unknown.
            connection.terminate()
            raise
        self._idle.append(connection)
        return text

    async def _connection(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await connect(self._url, timeout_seconds=CONNECT_SECONDS, application_name="understudy-features")
