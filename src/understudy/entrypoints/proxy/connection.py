"""uvicorn's connection, where nobody waits for ever for a request that does not arrive."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

WRITE_WHOLE = "understudy.write_whole"
"""Where a request's scope has :data:`WriteWhole`, on this server."""
WriteWhole: TypeAlias = Callable[[int, Iterable[tuple[bytes, bytes]], bytes], bool]
"""Writes a whole answer (status, headers, body) at once, or returns ``False`` and leaves it to ``send``."""


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
        """Let the application have what there is of the body, and a short way to answer."""
        super().on_headers_complete()
        self.scope[WRITE_WHOLE] = partial(write_whole, self.cycle)  # type: ignore[literal-required]  # an addition
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


def write_whole(cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    """Answer in one write, where nothing is unusual; return whether that was so.

    uvicorn's own way is two writes, and looks for forbidden bytes in each name and value (measured: a quarter of a
    predict call's processor time). So it is for headers whose bytes are known to be allowed, and which name the length.
    """
    if cycle.response_started or cycle.disconnected or not cycle.keep_alive or cycle.flow.write_paused:
        return False
    parts = [STATUS_LINE[status]]
    for name, value in (*cycle.default_headers, *headers):
        parts += (name, b": ", value, b"\r\n")
    parts += (b"\r\n", body)
    cycle.transport.write(b"".join(parts))
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True
