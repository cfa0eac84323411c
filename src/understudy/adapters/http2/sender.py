"""What is sent on a connection's streams: as much as the windows of both allow, and as the socket takes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from understudy.adapters.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_STREAM,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
    frame,
)

MAX_PART_BYTES = 65_536
"""Of a message that are sent at once, however much the peer takes: then it is looked whether the socket does."""
LEAST_PART_BYTES = 64
"""Of a part that counts as one: windows that grow by a byte are work for nothing."""
_MAX_FRAME_SIZES = range(16_384, 2**24)


class Sending(Protocol):
    """A stream whose message is sent."""

    number: int
    window: int
    """Bytes that the peer still takes on this stream."""
    opening: bytes
    """Frames that go before what is left of the message."""
    unsent: memoryview
    """What is left of it."""

    @property
    def closing(self) -> bytes | None:
        """Frames behind the message; empty: its last part ends the stream; ``None``: the stream goes on."""


S = TypeVar("S", bound=Sending)


class Sender(ABC, Generic[S]):
    """The sending side of a connection; ``on_part`` is called for each part of a message that did not go at once."""

    def __init__(self, on_part: Callable[[], None]) -> None:
        self._on_part = on_part
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._max_frame_bytes = DEFAULT_FRAME_BYTES
        self.is_paused = False
        """Whether the socket is full."""
        self._blocked: dict[int, S] = {}
        """Streams whose message has not been sent to its end."""
        self.streams: dict[int, S] = {}

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send frames as they are; the socket may be full behind them (:meth:`pause`)."""

    def pause(self, *, is_paused: bool) -> None:
        """Send nothing, or go on: the socket is full, or takes more."""
        self.is_paused = is_paused
        if not is_paused:
            self.resume()

    def settle(self, values: Mapping[int, int]) -> None:
        """Keep to the peer's settings; what they let go is sent by :meth:`resume`, behind their acknowledgement.

        Raises:
            ConnectionFault: One of them may not be.
        """
        size = values.get(MAX_FRAME_SIZE, self._max_frame_bytes)
        if size not in _MAX_FRAME_SIZES:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a setting that may not be")
        self._max_frame_bytes = size
        window = values.get(INITIAL_WINDOW_SIZE, self._initial_window)
        more, self._initial_window = window - self._initial_window, window
        for stream in self.streams.values():
            stream.window += more
        if max((window, *(stream.window for stream in self.streams.values()))) > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a window over its limit")

    def grow(self, stream: S | None, size: int) -> None:
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
        if self.is_paused:
            return
        for stream in tuple(self._blocked.values()):
            if self._window > 0 or not stream.unsent:
                self._pump(stream)

    def _takes(self, stream: S, size: int) -> bool:
        """Whether a message of this size may go in one frame, now; then it is counted."""
        if self.is_paused or size > self._window or size > stream.window or size > self._max_frame_bytes:
            return False
        self._window -= size
        stream.window -= size
        return True

    def _send(self, stream: S, message: bytes, opening: bytes) -> None:
        """Send a message behind these frames, in as many parts as windows and socket allow."""
        stream.opening, stream.unsent = opening, memoryview(message)
        self._blocked[stream.number] = stream
        if not self.is_paused:
            self._pump(stream)

    def _sent(self, stream: S) -> None:
        """Do what is to be done when a stream's message, and what is behind it, was sent."""

    def _pump(self, stream: S) -> None:
        """Send of a message what the windows allow and the socket takes."""
        parts, stream.opening = [stream.opening], b""
        size, is_moving = 0, False
        while not self.is_paused and (most := min(self._window, stream.window)) > 0 and stream.unsent:
            is_moving = True
            taken = min(most, len(stream.unsent), self._max_frame_bytes, MAX_PART_BYTES)
            part, stream.unsent = stream.unsent[:taken], stream.unsent[taken:]
            self._window -= taken
            stream.window -= taken
            if taken >= LEAST_PART_BYTES or not stream.unsent:
                self._on_part()
            is_last = not stream.unsent and stream.closing == b""
            parts.append(frame(DATA, END_STREAM if is_last else 0, stream.number, part))
            size += taken
            if size >= MAX_PART_BYTES:
                self.write(b"".join(parts))  # which may call pause()
                parts, size = [], 0
        if not stream.unsent:
            del self._blocked[stream.number]
            parts.append(stream.closing or b"")
        elif is_moving:  # now it is the others' turn
            self._blocked[stream.number] = self._blocked.pop(stream.number)
        data = b"".join(parts)
        if data:
            self.write(data)
        if not stream.unsent:
            self._sent(stream)
