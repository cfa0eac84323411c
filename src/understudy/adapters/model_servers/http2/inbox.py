"""What is received on a connection's streams: answers, their header blocks, resets."""

from collections.abc import Callable

from understudy.adapters.http2.ended_streams import EndedStreams
from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import (
    END_STREAM,
    ConnectionFault,
    ErrorCode,
    number_in,
    reset_frame,
    unpadded,
    window_frame,
)
from understudy.adapters.http2.header_blocks import SMALL_BYTES, HeaderBlocks
from understudy.adapters.model_servers.http2 import failures
from understudy.adapters.model_servers.http2.answer_head import HeadReader
from understudy.adapters.model_servers.http2.call import Outcome, UnaryCall
from understudy.adapters.model_servers.http2.outbox import Outbox
from understudy.adapters.model_servers.http2.stream import Stream

RECEIVE_WINDOW = 1_048_576
"""Bytes that a server may send ahead on a connection, of all answers together."""
HEAD_PART_BYTES = 256
"""Of a header block that no call waits for: so much of it costs as much as a frame, or more."""


class Inbox:
    """The receiving side of a connection; ``move`` finds another connection for a call that the server did not take."""

    def __init__(
        self, outbox: Outbox, budget: FrameBudget, move: Callable[[UnaryCall], None], on_end: Callable[[], None]
    ) -> None:
        self._outbox = outbox
        self._budget = budget
        self._move = move
        self._on_end = on_end
        self._heads = HeadReader()
        self.blocks = HeaderBlocks(budget, self._take_block)
        self._unreturned = 0
        """Bytes received that the server has not been allowed anew."""
        self._ended = EndedStreams(budget)
        """Those that have ended before their answer."""

    def take_data(self, flags: int, number: int, payload: bytes) -> None:
        """Take a part of an answer."""
        size = len(payload)
        self._count_received(size)
        stream = self._stream(number)
        payload = unpadded(flags, payload)
        if len(payload) < SMALL_BYTES and not flags & END_STREAM:
            self._budget.spend()
        if stream is None:
            self._ended.count(number, size)
            return
        failure = stream.take_data(payload, size)
        if failure is None and flags & END_STREAM:
            self._finish(stream, failures.malformed("the answer ends without a status"))
        elif failure is not None:
            self._refuse(stream, failure)
        elif more := stream.room():
            self._outbox.write(window_frame(number, more))

    def take_reset(self, _flags: int, number: int, payload: bytes) -> None:
        """Take the end of a stream without an answer."""
        code = number_in(payload)
        self.require_opened(number)
        stream = self._outbox.streams.get(number)
        if stream is None:
            self._budget.spend()
            return
        if code == ErrorCode.REFUSED_STREAM:
            self.give_back(stream, failures.reset(code))
            return
        self._forget(stream)
        stream.call.settle(failures.reset(code))

    def require_opened(self, number: int) -> None:
        """Let pass what is on a stream that was opened.

        Raises:
            ConnectionFault: It was not.
        """
        if not number % 2 or number > self._outbox.last_number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame on a stream that was not opened")

    def give_back(self, stream: Stream, failure: Exception) -> None:
        """Have another connection take a call that the server did not; at the second time it fails.

        A server that has begun an answer has taken the call, whatever it says.
        """
        self._forget(stream)
        if not stream.is_begun and stream.call.try_move():
            self._move(stream.call)
        else:
            stream.call.settle(failure)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream."""
        self._outbox.write(reset_frame(stream.number, code))
        self._forget(stream)

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        head = self._heads.read(block)  # of any stream, for the table's sake
        stream = self._stream(number)
        if stream is None:
            self._spend_on(block)
        elif flags & END_STREAM:
            self._finish(stream, stream.end(head))
        else:
            failure = stream.take_head(head)
            if failure is not None:
                self._refuse(stream, failure)
            elif not stream.is_begun:
                self._spend_on(block)  # an informational answer

    def _stream(self, number: int) -> Stream | None:
        """Return an open stream; ``None``: it was ended by us, and what still comes for it is let pass.

        Raises:
            ConnectionFault: It was never opened, or the server has ended it.
        """
        stream = self._outbox.streams.get(number)
        if stream is None:
            self.require_opened(number)
            self._ended.require(number)
        return stream

    def _finish(self, stream: Stream, outcome: Outcome) -> None:
        """The server has ended a stream."""
        stream.call.settle(outcome)
        if stream.unsent:  # it does not want the rest
            self.reset(stream, ErrorCode.NO_ERROR)
        else:
            self._budget.earn()
            self._outbox.forget(stream.number)
            self._on_end()

    def _refuse(self, stream: Stream, failure: Exception) -> None:
        stream.call.settle(failure)
        self.reset(stream, ErrorCode.CANCEL)

    def _forget(self, stream: Stream) -> None:
        """Count a stream as ended, of which frames may still come."""
        self._budget.earn()  # a late answer's frames are no attack
        self._ended.add(stream.number, stream.may_send)
        self._outbox.forget(stream.number)
        self._on_end()

    def _spend_on(self, block: bytes) -> None:
        self._budget.spend(1 + len(block) // HEAD_PART_BYTES)

    def _count_received(self, size: int) -> None:
        self._unreturned += size
        if self._unreturned >= RECEIVE_WINDOW // 4:
            self._outbox.write(window_frame(0, self._unreturned))
            self._unreturned = 0
