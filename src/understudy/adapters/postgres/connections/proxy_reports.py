"""Whether ``ProxyInstance`` can be read now: a proxy's login may lock it, and no rollback may wait for that."""

import asyncpg

PATIENCE_MILLISECONDS = 500
"""How long a reader waits for the table: longer than vacuum needs to shorten it."""
_IMPATIENCE_MILLISECONDS = 1


def lock_statements(patience_milliseconds: int) -> tuple[str, str, str]:
    """Return what takes the reader's lock for the rest of a transaction, or fails after its patience."""
    return (
        f"SET LOCAL lock_timeout = {patience_milliseconds}",
        "LOCK TABLE proxyinstance IN ACCESS SHARE MODE",
        "SET LOCAL lock_timeout TO DEFAULT",
    )


class ProxyReports:
    """Takes the reader's lock of ``ProxyInstance`` in a transaction, or says soon that another session keeps it out.

    The reading itself then waits for nothing. While the table stays locked, only the first call waits, so that a tick
    over many rollouts loses the time once.
    """

    def __init__(self) -> None:
        self._are_hidden = False

    async def can_be_read(self, connection: asyncpg.Connection) -> bool:
        """Return whether the transaction has the lock; it goes on either way."""
        statements = lock_statements(_IMPATIENCE_MILLISECONDS if self._are_hidden else PATIENCE_MILLISECONDS)
        try:
            async with connection.transaction():
                await connection.execute("; ".join(statements))
        except asyncpg.LockNotAvailableError:
            return self._note(are_hidden=True)
        return self._note(are_hidden=False)

    def _note(self, *, are_hidden: bool) -> bool:
        self._are_hidden = are_hidden
        return not are_hidden
