"""``KeyLookup`` over Postgres."""

from collections.abc import Collection, Mapping

from understudy.adapters.postgres.connections.connection import session
from understudy.core.routing.policy import ApiKey

_FIND = """
    SELECT id, sha256, scopes, tenant FROM apikey
    WHERE id = ANY ($1) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""
APPLICATION_NAME = "understudy-console"


class PostgresKeyLookup:
    """Opens a connection for each look-up and keeps none; each ends within ``timeout_seconds``."""

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._url = database_url
        self._seconds = timeout_seconds

    async def find(self, key_id: str) -> ApiKey | None:
        return (await self.find_all((key_id,))).get(key_id)

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, ApiKey]:
        possible = [name for name in key_ids if name.isprintable()]
        if not possible:
            return {}
        async with session(self._url, "a key cannot be looked up", self._seconds, APPLICATION_NAME) as connection:
            rows = await connection.fetch(_FIND, possible)
        return {
            row["id"]: ApiKey(row["id"], bytes.fromhex(row["sha256"]), frozenset(row["scopes"]), row["tenant"])
            for row in rows
        }
