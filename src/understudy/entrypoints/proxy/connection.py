"""uvicorn's connection, where nobody waits for ever for a request that does not arrive."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Connection(HttpToolsProtocol):
    """Closes itself when a request's headers take too long, or none comes at all; its first ``receive`` never waits.

    uvicorn bounds only the pause between two requests, and forgets that with the first byte of the next. The body's own
    bound is where it is read: the first message is what has come with the headers, so that only a body in pieces costs
    a timer.

    Args:
        receive_seconds: Longest time from the first byte of a request until its headers are complete.
        arguments: As uvicorn gives them to its own class.
    """

    def __init__(self, *, receive_seconds: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._receive_seconds = receive_seconds
        self._receiving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a first request as long as for a next one."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn says more exactly which it is
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def on_headers_complete(self) -> None:
        """Let the application have what there is of the body."""
        super().on_headers_complete()
        self.cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Start the clock when bytes have come that do not make a request yet, stop it when they do."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]  # there is none at first
            if self._receiving is None:
                self._receiving = self.loop.call_later(self._receive_seconds, self.timeout_keep_alive_handler)
        elif self._receiving is not None:
            self._stop_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def _stop_clock(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None
