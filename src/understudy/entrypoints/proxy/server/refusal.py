"""Refused connections: each is told why, 503, and closed."""

import asyncio
from collections.abc import Callable

import orjson

from understudy import __version__
from understudy.entrypoints.proxy.messages.problems import problem_body, problem_lines, status_of
from understudy.entrypoints.proxy.overload.lingering import Lingering
from understudy.entrypoints.proxy.server.response_writer import Header, last_answer
from understudy.errors import Overloaded

LINGER_SECONDS = 1.0
"""How long a refused caller may take to send its request and to read the answer."""
MAX_READ = 262_144
"""Bytes that are read of a refused caller. Closing a socket with unread bytes resets the connection, and the caller
might lose the answer."""
_ALIVE = (b"GET /livez ", b"HEAD /livez ", b"GET /startupz ")
"""Liveness is answered under overload, too: a process that is restarted for being busy leaves its load to others."""
_ALIVE_LINES = b"content-type: application/json\r\n"
_ALIVE_BODY = orjson.dumps({"status": "alive", "version": __version__})
DETAILS = {
    "connections": "the process holds as many connections as it may, and all have a request",
    "address": "the process holds as many connections of this address as it may, and all have a request",
    "memory": "the process is short of memory and takes no new connection",
    "lag": "the process's event loop lags and takes no new connection",
}
"""What a refused caller is told, by trigger."""


class Refusal(asyncio.Protocol):
    """Answers the first request of a connection with 503, or with 200 if it asks for liveness, and closes.

    Args:
        reason: The trigger, a key of :data:`DETAILS`.
        lingering: What else is refused.
        loop: The event loop.
        default_headers: Returns the headers of every response.
    """

    __slots__ = (
        "_default_headers",
        "_is_answered",
        "_lingering",
        "_loop",
        "_read_bytes",
        "_reason",
        "_timer",
        "_transport",
    )

    def __init__(
        self,
        reason: str,
        lingering: Lingering,
        loop: asyncio.AbstractEventLoop,
        default_headers: Callable[[], list[Header]],
    ) -> None:
        self._reason = reason
        self._lingering = lingering
        self._loop = loop
        self._default_headers = default_headers
        self._is_answered = False
        self._read_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one that writes
        """Wait for a request: some clients fail on an answer that comes before."""
        self._transport = transport
        self._timer = self._loop.call_later(LINGER_SECONDS, self.end)
        self._lingering.add(self)

    def data_received(self, data: bytes) -> None:
        """Answer, and read on, so that the answer arrives."""
        self._read_bytes += len(data)
        if self._read_bytes > MAX_READ:
            self.end()
        elif not self._is_answered:
            self._answer(is_alive=data.startswith(_ALIVE))
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()  # TLS says goodbye by itself

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why makes no difference
        """Leave the place to another one."""
        self._timer.cancel()
        self._lingering.discard(self)

    def end(self) -> None:
        """Close now; a caller that sent nothing is told before, too."""
        self._lingering.discard(self)
        if self._is_answered:
            self._transport.abort()
        else:
            self._answer(is_alive=False)
            self._transport.close()

    def _answer(self, *, is_alive: bool) -> None:
        self._is_answered = True
        headers = self._default_headers()
        if is_alive:
            answer = last_answer(200, headers, _ALIVE_LINES, _ALIVE_BODY)
        else:
            error = Overloaded(DETAILS[self._reason])
            answer = last_answer(status_of(error), headers, problem_lines(error), problem_body(error, ""))
        self._transport.write(answer)
