"""Long reads of the log: in a read-only transaction with a statement time-out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.errors import RegistryUnavailable


class LongReads(SessionPerCall):
    """Opens a read-only transaction for each question; Postgres' own time-out is a tenth before ``timeout_seconds``."""

    _WHEN_LATE = "Ask for less, with a later --since."

    @asynccontextmanager
    async def _read(self, what: str, application_name: str) -> AsyncIterator[asyncpg.Connection]:
        async with self._session(what, application_name) as connection:
            try:
                async with connection.transaction(readonly=True):
                    await connection.execute(
                        "SELECT set_config('statement_timeout', $1, TRUE)", f"{int(self._timeout_seconds * 900)}"
                    )
                    yield connection
            except asyncpg.QueryCanceledError as problem:
                took = f"Postgres did not find the answer within {self._timeout_seconds:g} s"
                raise RegistryUnavailable(took, hint=self._WHEN_LATE) from problem
