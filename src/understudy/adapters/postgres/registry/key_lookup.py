"""``KeyLookup`` over Postgres."""

from understudy.adapters.postgres.connections.connection import session
from understudy.core.routing.policy import ApiKey

_FIND = """
    SELECT id, sha256, scopes, tenant FROM apikey
    WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
"""
APPLICATION_NAME = "understudy-console"


class PostgresKeyLookup:
    """Opens a connection for each look-up and keeps none; each ends within ``timeout_seconds``."""

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._url = database_url
        self._seconds = timeout_seconds

    async def find(self, key_id: str) -> ApiKey | None:
        if "\0" in key_id or not key_id.isprintable():
            return None
        async with session(self._url, "a key cannot be looked up", self._seconds, APPLICATION_NAME) as connection:
            row = await connection.fetchrow(_FIND, key_id)
        if row is None:
            return None
        return ApiKey(row["id"], bytes.fromhex(row["sha256"]), frozenset(row["scopes"]), row["tenant"])
