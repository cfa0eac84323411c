"""Whether ``ProxyInstance`` can be read now: a proxy's login may lock it, and no rollback may wait for that."""

import asyncpg
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from understudy.adapters.postgres.connections.connection import asyncpg_error

PATIENCE_MILLISECONDS = 500
"""How long a reader waits for the table: longer than vacuum needs to shorten it."""
_IMPATIENCE_MILLISECONDS = 1


class ProxyReports:
    """Takes the reader's lock of ``ProxyInstance`` in a transaction, or says soon that another session keeps it out.

    The reading itself then waits for nothing. While the table stays locked, only the first call waits, so that a tick
    over many rollouts loses the time once.
    """

    def __init__(self) -> None:
        self._are_hidden = False

    async def can_be_read(self, connection: asyncpg.Connection) -> bool:
        """Return whether the transaction has the lock; it goes on either way."""
        bound, lock, unbound = self._statements()
        try:
            async with connection.transaction():
                await connection.execute(f"{bound}; {lock}; {unbound}")
        except asyncpg.LockNotAvailableError:
            return self._note(are_hidden=True)
        return self._note(are_hidden=False)

    async def can_be_read_by(self, connection: AsyncConnection) -> bool:
        """Do as :meth:`can_be_read`, on a connection of SQLAlchemy."""
        try:
            async with connection.begin_nested():
                for statement in self._statements():
                    await connection.execute(text(statement))
        except DBAPIError as problem:
            if not isinstance(asyncpg_error(problem), asyncpg.LockNotAvailableError):
                raise
            return self._note(are_hidden=True)
        return self._note(are_hidden=False)

    def _statements(self) -> tuple[str, str, str]:
        patience = _IMPATIENCE_MILLISECONDS if self._are_hidden else PATIENCE_MILLISECONDS
        return (
            f"SET LOCAL lock_timeout = {patience}",
            "LOCK TABLE proxyinstance IN ACCESS SHARE MODE",
            "SET LOCAL lock_timeout TO DEFAULT",
        )

    def _note(self, *, are_hidden: bool) -> bool:
        self._are_hidden = are_hidden
        return not are_hidden
