"""What is sent on a connection: calls while the server takes more streams, requests while it takes more bytes."""

import asyncio
from collections.abc import Callable, Mapping

from understudy.adapters.http2.frames import (
    DATA,
    ENABLE_PUSH,
    END_STREAM,
    MAX_CONCURRENT_STREAMS,
    MAX_STREAM,
    ConnectionFault,
    ErrorCode,
    frame,
    head_frames,
)
from understudy.adapters.http2.header_fields import NO_TABLE
from understudy.adapters.http2.sender import Sender
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.stream import Stream


class Outbox(Sender[Stream]):
    """The sending side of a connection; ``on_part`` is called for each part of a request that did not go at once."""

    def __init__(self, on_part: Callable[[], None], first_number: int = 1) -> None:
        super().__init__(on_part)
        self._transport: asyncio.WriteTransport | None = None
        self._max_streams = MAX_STREAM
        self._next_number = first_number
        self.pending: dict[UnaryCall, None] = {}
        """Calls that have no stream yet, the longest waiting first."""

    @property
    def last_number(self) -> int:
        """The number of the last stream that was opened."""
        return self._next_number - 2

    @property
    def is_used_up(self) -> bool:
        """Whether there are no numbers for further streams."""
        return self._next_number > MAX_STREAM

    def attach(self, transport: asyncio.WriteTransport) -> None:
        """Send over a transport from now on."""
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send frames as they are."""
        assert self._transport is not None
        self._transport.write(data)

    def start(self, call: UnaryCall) -> None:
        """Send a call, or have it wait until the server takes it."""
        if self.is_paused or len(self.streams) >= self._max_streams or self.is_used_up:
            self.pending[call] = None
        else:
            self._open(call)

    def forget(self, number: int) -> None:
        """End a stream, and send a call that waits for its place."""
        del self.streams[number]
        self._blocked.pop(number, None)
        if self.pending:
            self._start_pending()

    def clear(self) -> list[UnaryCall]:
        """Send nothing more, keep nothing of what was not sent, and return the calls in hand."""
        calls = [*self.pending, *(stream.call for stream in self.streams.values())]
        for kept in (self.pending, self.streams, self._blocked):
            kept.clear()
        return calls

    def settle(self, values: Mapping[int, int]) -> None:
        """Keep to the server's settings, that of its streams among them; raises as the base does."""
        if values.get(ENABLE_PUSH):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a setting that may not be")
        self._max_streams = values.get(MAX_CONCURRENT_STREAMS, self._max_streams)
        super().settle(values)

    def resume(self) -> None:
        """Send what windows, settings and the socket let go."""
        super().resume()
        if self.pending:
            self._start_pending()

    def _start_pending(self) -> None:
        while self.pending and not self.is_paused and len(self.streams) < self._max_streams and not self.is_used_up:
            call = next(iter(self.pending))
            del self.pending[call]
            self._open(call)

    def _open(self, call: UnaryCall) -> None:
        number, message = self._next_number, call.message
        call.number = number
        self._next_number = number + 2
        stream = self.streams[number] = Stream(number, call, self._initial_window)
        block = call.head_block() if number > 1 else NO_TABLE + call.head_block()
        head = head_frames(number, block, self._max_frame_bytes)
        if self._takes(stream, len(message)):
            self.write(head + frame(DATA, END_STREAM, number, message))
        else:
            self._send(stream, message, head)
