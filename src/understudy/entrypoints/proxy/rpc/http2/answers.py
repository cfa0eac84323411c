"""What is sent on a connection: answers as their callers take them, and all of a turn in one write."""

import asyncio
from collections.abc import Callable

from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import DATA, END_STREAM, ConnectionFault, ErrorCode, frame, head_frames
from understudy.adapters.http2.header_fields import NO_TABLE
from understudy.adapters.http2.sender import MAX_PART_BYTES, Sender
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers
from understudy.serving.turn_group import TurnGroup

MAX_UNREAD_BYTES = 65_536
"""Of replies that a caller asks for while it leaves unread what was sent before."""


class Answers(Sender[CallStream]):
    """The sending side of a connection.

    Args:
        budget: Earns by answers.
        unread: Holds those that are not taken at once.
        caller: Names the connection to it.
        on_sent: Called with a stream once its answer was sent.
    """

    def __init__(
        self, budget: FrameBudget, unread: UnreadAnswers, caller: object, on_sent: Callable[[CallStream], None]
    ) -> None:
        super().__init__(budget.earn)
        self._unread = unread
        self._caller = caller
        self._on_sent = on_sent
        self._transport: asyncio.WriteTransport | None = None
        self._frames = TurnGroup[bytes](self._flush)
        self._size = 0
        """Of the frames of this turn."""
        self._replies = 0
        """Bytes of replies since the socket is full."""
        self._is_first = True

    @property
    def initial_window(self) -> int:
        """Bytes that the caller takes of each answer at first."""
        return self._initial_window

    def attach(self, transport: asyncio.WriteTransport) -> None:
        """Send over a transport from now on."""
        self._transport = transport

    def write(self, data: bytes) -> None:
        """Send frames with all others of the turn, or before its end where they are many."""
        self._frames.add(data)
        self._size += len(data)
        if self._size > MAX_PART_BYTES:
            self._frames.end()

    def reply(self, data: bytes) -> None:
        """Send what a caller's frame asks for.

        Raises:
            ConnectionFault: The caller reads no replies.
        """
        self._replies = self._replies + len(data) if self.is_paused else 0
        if self._replies > MAX_UNREAD_BYTES:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "replies are not read")
        self.write(data)

    def flush(self) -> None:
        """Send now what the turn has come to."""
        self._frames.end()

    def answer(self, stream: CallStream, head: bytes, message: bytes, trailers: bytes | None) -> None:
        """Send an answer, or a part of one: without trailers the stream goes on."""
        opening = self._head(stream, head) if head else b""
        closing = None if trailers is None else head_frames(stream.number, trailers, self._max_frame_bytes, END_STREAM)
        if self._takes(stream, len(message)):
            self.write(opening + frame(DATA, 0, stream.number, message) + (closing or b""))
            self._sent(stream, is_last=closing is not None)
            return
        stream.closing = closing
        self._hold(stream, len(message))
        self._send(stream, message, opening)

    def end(self, stream: CallStream, block: bytes) -> None:
        """Send the block that ends a stream."""
        closing = self._head(stream, block, END_STREAM)
        if self.is_paused or stream.number in self._blocked:
            stream.closing = closing
            self._hold(stream, len(block))
            if stream.number not in self._blocked:
                self._send(stream, b"", b"")
            return
        self.write(closing)
        self._sent(stream, is_last=True)

    def forget(self, stream: CallStream) -> None:
        """Send nothing more on a stream."""
        del self.streams[stream.number]
        if self._blocked.pop(stream.number, None) is not None:
            self._unread.release(stream)

    def clear(self) -> list[CallStream]:
        """Send nothing more, and return the streams."""
        streams = list(self.streams.values())
        for stream in streams:
            self.forget(stream)
        return streams

    def _head(self, stream: CallStream, block: bytes, flags: int = 0) -> bytes:
        stream.has_head = True
        if self._is_first:
            self._is_first, block = False, NO_TABLE + block
        return head_frames(stream.number, block, self._max_frame_bytes, flags)

    def _hold(self, stream: CallStream, size: int) -> None:
        self._unread.release(stream)
        self._unread.hold(stream, self._caller, size)

    def _sent(self, stream: CallStream, *, is_last: bool | None = None) -> None:
        if is_last is None:  # it had to wait
            self._unread.release(stream)
            is_last = stream.closing is not None
        if is_last:
            self._on_sent(stream)
        elif stream.sent is not None and not stream.sent.done():
            stream.sent.set_result(None)

    def _flush(self, frames: list[bytes]) -> None:
        self._size = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(frames) if len(frames) > 1 else frames[0])
