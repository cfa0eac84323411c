"""Backpressure: how much a connection parses in a turn, what has come unread, and when it reads and answers more."""

import asyncio
import select
from collections.abc import Callable, Collection

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

TURN_BYTES = 4_096
"""Bytes that one connection may have parsed in a turn of the event loop, when requests end in them: a dozen predict
calls, or 150 of the smallest requests there are."""


class Backlog(FlowControl):
    """A connection's flow control, with what came and waits for a later turn: until that is parsed, reading pauses.

    So pipelined requests are parsed a few in a turn, and other connections have theirs.

    Args:
        transport: The connection's.
        loop: Its event loop.
        pipeline: Its requests that are parsed and wait for the answers to earlier ones.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, pipeline: Collection[object]
    ) -> None:
        super().__init__(transport)
        self.unparsed = bytearray()
        self._loop = loop
        self._pipeline = pipeline
        self._next_turn: asyncio.Handle | None = None

    def add(self, data: bytes | memoryview) -> None:
        """Keep bytes for a later turn, and read no more until then."""
        self.unparsed += data
        self.pause_reading()

    def plan_turn(self, receive: Callable[[bytes], None]) -> None:
        """Give them to ``receive`` in the next turn, or once all but the last request that was parsed are answered."""
        if self._next_turn is None and not self._pipeline:
            self._next_turn = self._loop.call_soon(self._take_turn, receive)

    def resume_reading(self) -> None:
        """Read on, if nothing is left of what was read."""
        if not self.unparsed:
            super().resume_reading()

    def _take_turn(self, receive: Callable[[bytes], None]) -> None:
        self._next_turn = None
        data = bytes(self.unparsed)
        self.unparsed.clear()
        if not self._transport.is_closing():
            receive(data)
            if not self._pipeline:
                self.resume_reading()


def is_answered(connection: HttpToolsProtocol) -> bool:
    """Whether the last request that was parsed is answered, and so each one before it."""
    cycle = connection.cycle
    return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]  # there is none at first


def is_free(connection: HttpToolsProtocol) -> bool:
    """Whether all requests are answered, and the caller has taken enough of the answers."""
    cycle = connection.cycle
    return not connection.flow.write_paused and (cycle is None or cycle.response_complete)  # type: ignore[redundant-expr]  # as above


def has_unread_bytes(transport: asyncio.Transport) -> bool:
    """Whether bytes, or the end of them, have come on a connection that the event loop did not take yet.

    A connection that is lost has none, nor a socket, also in the turns of the event loop until its protocol is told.
    """
    held = transport.get_extra_info("socket")
    return held is not None and held.fileno() >= 0 and is_any_readable(held.fileno())


def is_any_readable(*descriptors: int) -> bool:
    """Whether bytes, their end or connections not taken by the event loop yet have come on one of these sockets."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
