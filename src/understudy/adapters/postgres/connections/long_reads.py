"""Long reads of the log: in a read-only transaction with a statement time-out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.errors import RegistryUnavailable


class LongReads(SessionPerCall):
    """Opens a read-only transaction for each question; Postgres' own time-out is a tenth before ``timeout_seconds``.

    A question may have less time than that.
    """

    _WHEN_LATE = "Ask for less, with a later --since."

    @asynccontextmanager
    async def _read(
        self, what: str, application_name: str, within_seconds: float = inf
    ) -> AsyncIterator[asyncpg.Connection]:
        seconds = min(within_seconds, self._timeout_seconds)
        async with self._session(what, application_name) as connection:
            try:
                async with connection.transaction(readonly=True):
                    await connection.execute(
                        "SELECT set_config('statement_timeout', $1, TRUE)", f"{int(seconds * 900)}"
                    )
                    yield connection
            except asyncpg.QueryCanceledError as problem:
                took = f"Postgres did not find the answer within {round(seconds, 2):g} s"
                raise RegistryUnavailable(took, hint=self._WHEN_LATE) from problem
