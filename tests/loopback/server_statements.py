"""Statements to a Postgres about its databases, on one connection for a whole session of tests."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

CONNECT_SECONDS, STATEMENT_SECONDS = 60.0, 180.0
"""Only what hangs takes so long: with three workers on a busy machine ten thousand policies need half a minute."""


class ServerStatements:
    """Runs statements for tests, each of which has an event loop of its own.

    A connection costs the server and us some milliseconds each, and a thousand tests make and drop a database.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str) -> None:
        self._loop = loop
        self._connection = self._wait_for(
            asyncpg.connect(url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS)
        )

    def execute(self, statement: str) -> None:
        """Run one statement outside of a transaction, in the loop of the session."""
        self._wait_for(self._connection.execute(statement))

    def close(self) -> None:
        self._wait_for(self._connection.close(timeout=5))

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def server_statements(url: str) -> Iterator[ServerStatements]:
    """Connect to the server of ``url`` until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="server-statements", daemon=True)
    thread.start()
    try:
        statements = ServerStatements(loop, url)
        yield statements
        statements.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
