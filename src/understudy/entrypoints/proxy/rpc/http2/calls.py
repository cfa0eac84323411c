"""The calls of a connection: their headers, messages and resets as they come, and which may still come."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from understudy.adapters.http2.ended_streams import MORE_THAN_ITS_WINDOW, EndedStreams
from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import (
    DEFAULT_WINDOW,
    END_STREAM,
    ConnectionFault,
    ErrorCode,
    number_in,
    reset_frame,
    unpadded,
    window_frame,
)
from understudy.adapters.http2.header_blocks import SMALL_BYTES, BlockReader, Fields, HeaderBlocks
from understudy.entrypoints.proxy.overload.body_budget import BodyBudget, HeldBody, no_room
from understudy.entrypoints.proxy.rpc.http2.answers import Answers
from understudy.entrypoints.proxy.rpc.http2.message import IncomingMessage
from understudy.entrypoints.proxy.rpc.http2.request_head import Malformed, read_head
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers

_log = structlog.get_logger(__name__)
MAX_STREAMS = 1_024
"""Calls of a connection at a time."""
RECEIVE_WINDOW = 1_048_576
"""Bytes that a caller may send ahead on a connection, of all messages together."""
RESETS_PER_SECOND = 500.0
"""Calls that a caller may begin and give up at once, for long (rapid reset)."""
RAPID_SECONDS = 1.0
"""A call that lasted so long before it was given up had a place all the time, which is bound enough."""
_CALL_FIELDS = 8
_HEAD_PART_BYTES, _HEAD_PART_FIELDS = 256, 8


@dataclass(frozen=True, slots=True)
class Serving:
    """What all connections of a port have in common.

    Args:
        handle: Answers a call, on its stream.
        message_bytes: A message's bound, as it comes.
        unread: Holds answers that are not taken.
        budget: Counts pieces of messages.
    """

    handle: Callable[[CallStream], Coroutine[Any, Any, None]]
    message_bytes: int
    unread: UnreadAnswers
    budget: BodyBudget | None


class Calls:
    """The calls of a connection.

    Args:
        serving: Of all connections.
        budget: Pays for frames that bring no call nearer its end.
        on_none: Called when there is no call any more.
    """

    def __init__(self, serving: Serving, budget: FrameBudget, on_none: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = serving
        self._budget = budget
        self._on_none = on_none
        self._resets = FrameBudget(self._loop.time, RESETS_PER_SECOND)
        self._heads = BlockReader()
        self._ended = EndedStreams(budget)
        self._begun: list[CallStream] = []
        """Opened by what is being read."""
        self._unreturned = 0
        """Bytes received that the caller has not been allowed anew."""
        self.answers = Answers(budget, serving.unread, self, self._on_sent)
        self.blocks = HeaderBlocks(budget, self._take_block)
        self.turn_fields = 0
        """Of headers, read in this turn; a call counts for some more, and a piece of a message for one."""
        self.last = 0
        """The last stream that its caller opened."""
        self.takes_more = True
        """Whether further calls are taken; where not, the caller knows, and sends them elsewhere."""
        self.address = ""
        self.read_at = self._loop.time()
        """When what is being read came."""

    # -- what is read --------------------------------------------------------------------------------------------------

    def take_data(self, flags: int, number: int, payload: bytes) -> None:
        """Take a part of a message."""
        size = len(payload)
        self._count_received(size)
        self.turn_fields += 1
        stream = self._open_stream(number)
        payload = unpadded(flags, payload)
        if len(payload) < SMALL_BYTES and not flags & END_STREAM:
            self._budget.spend()
        if stream is None:
            self._ended.count(number, size)
            return
        message = stream.message
        message.may_send -= size
        if message.may_send < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, MORE_THAN_ITS_WINDOW)
        if payload:
            message.take(payload)
        if flags & END_STREAM:
            _end_message(stream)
        elif message.is_awaited:
            self.allow(stream)

    def take_reset(self, _flags: int, number: int, payload: bytes) -> None:
        """Take a caller's word that it gives a call up."""
        number_in(payload)
        stream = self.opened(number)
        if stream is None:
            self._budget.spend()
            return
        if self.read_at - stream.since < RAPID_SECONDS:
            self._resets.spend()
        stream.forget()
        self._forget(stream)

    def opened(self, number: int) -> CallStream | None:
        """Return a stream, if it is open.

        Raises:
            ConnectionFault: It was never opened, nor refused.
        """
        if not number % 2 or (number > self.last and self.takes_more):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame on a stream that was not opened")
        return self.answers.streams.get(number)

    def begin(self) -> None:
        """Begin the calls that a read has brought: all in one turn, most with their messages."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        for stream in begun:
            if stream.number in self.answers.streams:
                stream.task = self._loop.create_task(self._handle(stream))

    def end_messages(self) -> None:
        """Have all messages that are on their way give way."""
        for stream in self.answers.streams.values():
            if not stream.message.is_found:
                stream.message.fail(no_room("messages"))

    def clear(self) -> None:
        """End all calls: nothing of them can be sent any more."""
        self._begun.clear()
        for stream in self.answers.clear():
            stream.forget()

    # -- towards streams -----------------------------------------------------------------------------------------------

    def allow(self, stream: CallStream) -> None:
        """Allow the caller what is missing of a message."""
        more = stream.message.room()
        if more:
            self.answers.write(window_frame(stream.number, more))

    def answer(self, stream: CallStream, head: bytes, message: bytes, trailers: bytes | None) -> None:
        """Send an answer, or a part of one, unless its caller has gone."""
        if stream.number in self.answers.streams:
            self.answers.answer(stream, head, message, trailers)

    def end_call(self, stream: CallStream, block: bytes) -> None:
        """Send the block that ends a call, unless its caller has gone."""
        if stream.number in self.answers.streams:
            self.answers.end(stream, block)

    def reset(self, stream: CallStream, code: ErrorCode) -> None:
        """End a stream by force, with the call on it."""
        if stream.number in self.answers.streams:
            self.answers.write(reset_frame(stream.number, code))
            self._ended.add(stream.number, stream.message.may_send)
            stream.forget()
            self._forget(stream)

    async def _handle(self, stream: CallStream) -> None:
        """Answer a call; a defect of ours ends its stream, which would else stand open, and no other."""
        try:
            await self._serving.handle(stream)
        except Exception:  # noqa: BLE001 - the last resort: the log gets the cause, the caller no internals
            _log.exception("grpc_call.failed", path=stream.head.path)
            self.reset(stream, ErrorCode.INTERNAL_ERROR)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        fields = self._heads.read(block)  # of any stream, for the table's sake
        self.turn_fields += _CALL_FIELDS + len(fields)
        if number <= self.last:
            self._take_trailers(flags, number, block, fields)
            return
        if not number % 2:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream that callers may not open")
        if not self.takes_more:
            self._spend_on(block, fields)
            return
        self.last = number
        if len(self.answers.streams) >= MAX_STREAMS:
            self._spend_on(block, fields)
            self._refuse(number, ErrorCode.REFUSED_STREAM)
            return
        try:
            head = read_head(fields)
        except Malformed:
            self._spend_on(block, fields)
            self._refuse(number, ErrorCode.PROTOCOL_ERROR)
            return
        if head.is_too_long:
            self._spend_on(block, fields)
        message = IncomingMessage(
            HeldBody(self._serving.budget, self.address), self._serving.message_bytes, DEFAULT_WINDOW
        )
        stream = CallStream(number, head, message, self, since=self.read_at, window=self.answers.initial_window)
        self.answers.streams[number] = stream
        self._begun.append(stream)
        if flags & END_STREAM:
            _end_message(stream)

    def _take_trailers(self, flags: int, number: int, block: bytes, fields: Fields) -> None:
        stream = self._open_stream(number)
        if stream is None:
            self._spend_on(block, fields)
        elif not flags & END_STREAM:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a second header")
        else:
            _end_message(stream)

    def _open_stream(self, number: int) -> CallStream | None:
        """Return an open stream; ``None``: it was ended by us, and what still comes for it is let pass.

        Raises:
            ConnectionFault: It was never opened, or the caller has ended it.
        """
        stream = self.opened(number)
        if stream is None:
            if number <= self.last:
                self._ended.require(number)
        elif stream.has_ended:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "a frame on a stream that it has ended")
        return stream

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """Refuse to open a stream."""
        self.answers.reply(reset_frame(number, code))
        self._ended.add(number, DEFAULT_WINDOW)

    def _spend_on(self, block: bytes, fields: Fields) -> None:
        """Count a block that was read for nothing by what that took: a field may have one byte."""
        self._budget.spend(1 + max(len(block) // _HEAD_PART_BYTES, len(fields) // _HEAD_PART_FIELDS))

    def _count_received(self, size: int) -> None:
        self._unreturned += size
        if self._unreturned >= RECEIVE_WINDOW // 4:
            self.answers.write(window_frame(0, self._unreturned))
            self._unreturned = 0

    def _on_sent(self, stream: CallStream) -> None:
        """A call was answered to its end."""
        self._budget.earn()
        if not stream.has_ended:  # it need not send the rest
            self.answers.write(reset_frame(stream.number, ErrorCode.NO_ERROR))
            self._ended.add(stream.number, stream.message.may_send)
        stream.task = None
        self._forget(stream)

    def _forget(self, stream: CallStream) -> None:
        self.answers.forget(stream)
        if not self.answers.streams:
            self._on_none()


def _end_message(stream: CallStream) -> None:
    stream.has_ended = True
    stream.message.end()
