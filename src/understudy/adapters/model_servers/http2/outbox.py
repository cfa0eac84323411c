"""What is sent on a connection: calls while the server takes more streams, requests while it takes more bytes."""

import asyncio
from collections.abc import Callable, Mapping

from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_STREAM,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_STREAM,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
    frame,
    head_frames,
)
from understudy.adapters.model_servers.http2.request_head import NO_TABLE
from understudy.adapters.model_servers.http2.stream import Stream

MAX_PART_BYTES = 65_536
"""Of a request that are sent at once, however much the server takes: then it is looked whether the socket does."""
LEAST_PART_BYTES = 64
"""Of a part that counts as one: windows that grow by a byte are work for nothing."""
_MAX_FRAME_SIZES = range(16_384, 2**24)


class Outbox:
    """The sending side of a connection; ``on_part`` is called for each part of a request that did not go at once."""

    def __init__(self, on_part: Callable[[], None], first_number: int = 1) -> None:
        self._on_part = on_part
        self._transport: asyncio.WriteTransport | None = None
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._max_frame_bytes = DEFAULT_FRAME_BYTES
        self._max_streams = MAX_STREAM
        self.is_paused = False
        """Whether the socket is full."""
        self._next_number = first_number
        self._blocked: dict[int, Stream] = {}
        """Streams whose request has not been sent to its end."""
        self.pending: dict[UnaryCall, None] = {}
        """Calls that have no stream yet, the longest waiting first."""
        self.streams: dict[int, Stream] = {}

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

    def pause(self, *, is_paused: bool) -> None:
        """Send nothing, or go on: the socket is full, or takes more."""
        self.is_paused = is_paused
        if not is_paused:
            self.resume()

    def settle(self, values: Mapping[int, int]) -> None:
        """Keep to the server's settings; what they let go is sent by :meth:`resume`, behind their acknowledgement.

        Raises:
            ConnectionFault: One of them may not be.
        """
        self._max_streams = values.get(MAX_CONCURRENT_STREAMS, self._max_streams)
        size = values.get(MAX_FRAME_SIZE, self._max_frame_bytes)
        if size not in _MAX_FRAME_SIZES or values.get(ENABLE_PUSH):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a setting that may not be")
        self._max_frame_bytes = size
        window = values.get(INITIAL_WINDOW_SIZE, self._initial_window)
        more, self._initial_window = window - self._initial_window, window
        for stream in self.streams.values():
            stream.window += more
        if max((window, *(stream.window for stream in self.streams.values()))) > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window over its limit")

    def grow(self, stream: Stream | None, size: int) -> None:
        """Let a stream, or without one the connection, send so many bytes more.

        Raises:
            ConnectionFault: They are none, or too many.
        """
        if not size:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a window that grows by nothing")
        if stream is None:
            self._window += size
        else:
            stream.window += size
        if max(self._window, 0 if stream is None else stream.window) > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window over its limit")
        self.resume()

    def resume(self) -> None:
        """Send what windows, settings and the socket let go."""
        for stream in tuple(self._blocked.values()):
            self._pump(stream)
        if self.pending:
            self._start_pending()

    def _start_pending(self) -> None:
        while self.pending and not self.is_paused and len(self.streams) < self._max_streams and not self.is_used_up:
            call = next(iter(self.pending))
            del self.pending[call]
            self._open(call)

    def _open(self, call: UnaryCall) -> None:
        number, message, size = self._next_number, call.message, len(call.message)
        call.number = number
        self._next_number = number + 2
        stream = self.streams[number] = Stream(number, call, self._initial_window)
        block = call.head_block() if number > 1 else NO_TABLE + call.head_block()
        head = head_frames(number, block, self._max_frame_bytes)
        if size <= self._window and size <= stream.window and size <= self._max_frame_bytes:
            self._window -= size
            stream.window -= size
            self.write(head + frame(DATA, END_STREAM, number, message))
            return
        stream.unsent = memoryview(message)
        self._blocked[number] = stream
        self._pump(stream, head)

    def _pump(self, stream: Stream, head: bytes = b"") -> None:
        """Send of a request what the windows allow and the socket takes, behind its head if that was not sent."""
        parts = [head] if head else []
        size, is_moving = 0, False
        while not self.is_paused and (most := min(self._window, stream.window)) > 0 and stream.unsent:
            is_moving = True
            taken = min(most, len(stream.unsent), self._max_frame_bytes, MAX_PART_BYTES)
            part, stream.unsent = stream.unsent[:taken], stream.unsent[taken:]
            self._window -= taken
            stream.window -= taken
            if taken >= LEAST_PART_BYTES or not stream.unsent:
                self._on_part()
            parts.append(frame(DATA, 0 if stream.unsent else END_STREAM, stream.number, part))
            size += taken
            if size >= MAX_PART_BYTES:
                self.write(b"".join(parts))  # which may call pause()
                parts, size = [], 0
        if not stream.unsent:
            del self._blocked[stream.number]
        elif is_moving:  # now it is the others' turn
            self._blocked[stream.number] = self._blocked.pop(stream.number)
        if parts:
            self.write(b"".join(parts))
