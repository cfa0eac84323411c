"""Writes a whole response at once: status line, headers and body in one write to the socket."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from understudy.core.value import Slotted
from understudy.entrypoints.proxy.messages.headers import header_lines

WRITE_WHOLE = "understudy.write_whole"
"""Key of :data:`WriteWhole` in a request's ASGI scope, on this server."""
IS_LOST = "understudy.is_lost"
"""Key of what says, in a request's ASGI scope on this server, whether its connection is closed."""
IS_INCOMPLETE = "understudy.is_incomplete"
"""Key of what says, in the ASGI scope of a connection's last request on this server, whether some of its body has not
come; other requests have none."""
Header: TypeAlias = tuple[bytes, bytes]
WriteWhole: TypeAlias = Callable[[int, Iterable[Header], bytes], bool]
"""Writes a whole response (status, headers, body) at once, or returns ``False`` and leaves it to ASGI's ``send``."""
_CLOSE_LINE = b"connection: close\r\n"
_WHOLE = b"%b%bcontent-length: %d\r\n%b%b\r\n%b"


class FastPathCycle(Slotted):
    """A fast-path call among its connection's requests: its response writer, with what uvicorn reads of a cycle."""

    _connection: HttpToolsProtocol
    keep_alive: bool = True
    disconnected: bool = False
    response_complete: bool = False

    @property
    def response_started(self) -> bool:
        """Whether it is answered: all of a response is written at once."""
        return self.response_complete

    @property
    def message_event(self) -> "FastPathCycle":
        """What uvicorn sets when the connection is lost: no task waits for it here."""
        return self

    def set(self) -> None:
        """Do nothing: no task waits."""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write a response, its headers as lines, unless the caller has disconnected."""
        connection = self._connection
        transport = connection.transport
        if self.response_complete or self.disconnected or transport.is_closing():
            self.response_complete = True
            return
        # Backpressure: a slow reader gets at most this one response too early, as its next call goes through ASGI.
        headers = connection.server_state.default_headers
        default_lines = _default_lines.lines if headers is _default_lines.headers else _default_lines(headers)
        close_line = b"" if self.keep_alive else _CLOSE_LINE
        transport.write(_WHOLE % (STATUS_LINE[status], default_lines, len(body), lines, close_line, body))
        self.response_complete = True
        if not self.keep_alive:
            transport.close()
        connection.on_response_complete()  # begins the next request, unless this was the last


class LastResponse:
    """Which response of a connection says ``connection: close`` while its process shuts down."""

    __slots__ = ("_cycle", "is_draining")

    def __init__(self) -> None:
        self.is_draining = False
        self._cycle: RequestResponseCycle | FastPathCycle | None = None

    def mark(self, cycle: RequestResponseCycle | FastPathCycle) -> None:
        """Let this response be the last one, unless it has begun; one that was to be the last before is not."""
        if cycle is self._cycle:
            return
        if self._cycle is not None and not self._cycle.response_started:
            self._cycle.keep_alive = True
        self._cycle = None
        if cycle.keep_alive and not cycle.response_started:
            cycle.keep_alive = False
            self._cycle = cycle


def write_whole(cycle: RequestResponseCycle, status: int, headers: Iterable[Header], body: bytes) -> bool:
    """Write a plain response in one write; return ``False``, with nothing written, where ASGI's ``send`` must do it.

    uvicorn's ``send`` makes two writes, and searches each name and value for forbidden bytes (measured: a quarter of a
    predict call's processor time). So the headers here must be known to be valid, and name the length.
    """
    lines = header_lines(headers)
    is_last = not cycle.keep_alive or _CLOSE_LINE in lines
    if cycle.response_started or cycle.disconnected or is_last or cycle.flow.write_paused:
        return False
    cycle.transport.write(_answer(status, cycle.default_headers, lines, body))
    cycle.response_started = cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True


def is_lost(cycle: RequestResponseCycle) -> bool:
    """Whether a request's connection is closed; uvicorn is told then, which itself tells only the newest request."""
    cycle.disconnected = cycle.disconnected or cycle.transport.is_closing()
    return cycle.disconnected


def last_text_answer(status: int, default_headers: list[Header], text: bytes) -> bytes:
    """Return the bytes of a plain-text response after which the connection is closed."""
    return last_answer(status, default_headers, b"content-type: text/plain; charset=utf-8\r\n", text)


def last_answer(status: int, default_headers: list[Header], lines: bytes, body: bytes) -> bytes:
    """Return the bytes of a response after which the connection is closed, its headers as lines."""
    length = b"content-length: %d\r\n" % len(body)
    return _answer(status, default_headers, lines + length + _CLOSE_LINE, body)


def _answer(status: int, default_headers: list[Header], lines: bytes, body: bytes) -> bytes:
    return b"%b%b%b\r\n%b" % (STATUS_LINE[status], _default_lines(default_headers), lines, body)


class _DefaultLines:
    """Caches the default headers as lines; uvicorn makes a new list of them each second."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        self.lines = b""

    def __call__(self, headers: list[Header]) -> bytes:
        if headers is not self.headers:
            self.headers, self.lines = headers, header_lines(headers)
        return self.lines


_default_lines = _DefaultLines()
