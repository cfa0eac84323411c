"""One connection of a caller: reads its frames, opens calls, and ends when rules are broken, or gracefully."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, cast

from understudy.adapters.http2.ended_streams import MORE_THAN_ITS_WINDOW, EndedStreams
from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_STREAM,
    GOAWAY,
    HEADER_TABLE_SIZE,
    HEADERS,
    MAX_CONCURRENT_STREAMS,
    MAX_HEADER_LIST_SIZE,
    MAX_STREAM,
    PING,
    PREFACE,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFault,
    ErrorCode,
    FrameReader,
    frame,
    goaway_frame,
    number_in,
    reset_frame,
    settings_frame,
    settings_in,
    unpadded,
    window_frame,
)
from understudy.adapters.http2.header_blocks import SMALL_BYTES, BlockReader, HeaderBlocks
from understudy.entrypoints.proxy.rpc.http2.answers import Answers
from understudy.entrypoints.proxy.rpc.http2.message import IncomingMessage
from understudy.entrypoints.proxy.rpc.http2.request_head import MAX_METADATA_BYTES, Malformed, read_head
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers
from understudy.entrypoints.proxy.server.body_budget import BodyBudget, HeldBody, no_room
from understudy.entrypoints.proxy.server.overload import counted_address

MAX_STREAMS = 1_024
"""Calls of a connection at a time."""
RECEIVE_WINDOW = 1_048_576
"""Bytes that a caller may send ahead on a connection, of all messages together."""
RESETS_PER_SECOND = 500.0
"""Calls that a caller may begin and give up at once, for long (rapid reset)."""
RAPID_SECONDS = 1.0
"""A call that lasted so long before it was given up had a place all the time, which is bound enough."""
LINGER_SECONDS = 1.0
"""For which a connection that has ended is left to its caller to close: what it sends meanwhile would have the kernel
reset it, and the last answers with it."""
ROUND_TRIP_SECONDS = 10.0
"""For which a caller may take to say that it has read of the end, before its further calls are not taken."""
SILENT_SECONDS = 20
"""How long what we sent may stay unacknowledged by the peer's kernel, and a ping by the peer."""
_SETTINGS = {
    HEADER_TABLE_SIZE: 0,
    MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    MAX_HEADER_LIST_SIZE: MAX_METADATA_BYTES,
}
_HELLO = settings_frame(_SETTINGS) + window_frame(0, RECEIVE_WINDOW - DEFAULT_WINDOW)
_HEAD_PART_BYTES = 256
_PRIORITY_BYTES, _PING_BYTES, _GOAWAY_BYTES = 5, 8, 8
_LEAVING, _ALIVE = b"leaving.", b"alive..."
"""What our pings carry."""


class Owner(Protocol):
    """What accepted a connection."""

    def lost(self, connection: "Http2Connection") -> None:
        """Hold a connection no longer."""


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


class Http2Connection(asyncio.Protocol):
    """A connection; what it reads is in ``_take_…``, by kind of frame."""

    def __init__(self, owner: Owner, serving: Serving) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._serving = serving
        self._transport: asyncio.Transport | None = None
        self._budget = FrameBudget(self._loop.time)
        self._resets = FrameBudget(self._loop.time, RESETS_PER_SECOND)
        self._answers = Answers(self._budget, serving.unread, self, self._on_sent)
        self._heads = BlockReader()
        self._blocks = HeaderBlocks(self._budget, self._take_block)
        self._ended_streams = EndedStreams(self._budget)
        self._reader = FrameReader()
        self._preface = b""
        self._has_preface = self._has_settings = False
        self._last = 0
        """The last stream that its caller opened."""
        self._begun: list[CallStream] = []
        """Opened by what is being read."""
        self._unreturned = 0
        """Bytes received that the caller has not been allowed anew."""
        self._leave_timer: asyncio.TimerHandle | None = None
        self._leaves_at_last = False
        """Whether the last GOAWAY was sent: no further call is taken."""
        self.address = ""
        self.is_leaving = False
        """Whether its caller was told to send its further calls elsewhere, or will be."""
        self.is_over = False
        self.began_at = self.heard_at = self.idle_since = self._loop.time()
        self.paused_at: float | None = None
        """Since when the socket takes nothing more."""
        self.pinged_at: float | None = None
        self._take: dict[int, Callable[[int, int, bytes], None]] = {
            DATA: self._take_data,
            HEADERS: self._blocks.take_headers,
            PRIORITY: self._take_priority,
            RST_STREAM: self._take_reset,
            SETTINGS: self._take_settings,
            PUSH_PROMISE: self._take_push,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window,
            CONTINUATION: self._blocks.take_continuation,
        }

    # -- towards the port ----------------------------------------------------------------------------------------------

    @property
    def is_greeted(self) -> bool:
        """Whether its caller has said that it speaks HTTP/2, and how."""
        return self._has_settings

    @property
    def calls(self) -> int:
        """How many have not been answered to their end."""
        return len(self._answers.streams)

    @property
    def transport(self) -> asyncio.Transport:
        """What it is on."""
        assert self._transport is not None
        return self._transport

    def leave(self) -> None:
        """Have its caller send further calls elsewhere, lose none that are on their way, and end with the last answer.

        The caller is told at first that any call may still come, and with a ping: what it sent before it read that is
        here when it answers. Then it is told which call is the last one (RFC 9113, section 6.8).
        """
        if self.is_leaving or self.is_over:
            return
        self.is_leaving = True
        if self._has_settings:
            self._say_leaving()

    def end_messages(self) -> None:
        """Have all messages that are on their way give way."""
        for stream in self._answers.streams.values():
            if not stream.message.is_found:
                stream.message.fail(no_room("messages"))

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pinged_at = self._loop.time()
        self._answers.write(frame(PING, 0, 0, _ALIVE))

    def end(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """End the connection, with every call on it."""
        if self.is_over:
            return
        self._close_calls()
        self._answers.write(goaway_frame(code, self._last, why.encode()))
        self._close()

    def abort(self) -> None:
        """End it at once: its caller takes nothing."""
        self._close_calls()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio's protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self.address = counted_address(transport.get_extra_info("peername"))
        plain = transport.get_extra_info("socket")
        if plain is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1_000)
        self._answers.attach(self._transport)
        self._transport.write(_HELLO)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self.is_over:
            return
        self.heard_at = self._loop.time()
        self.pinged_at = None
        try:
            if not self._has_preface:
                data = self._without_preface(data)
            for kind, flags, number, payload in self._reader.cut(data):
                self._take_frame(kind, flags, number, payload)
                if self.is_over:
                    return
        except ConnectionFault as fault:
            self.end(fault.code, fault.why)
        finally:
            if self._begun:
                self._begin_calls()

    def pause_writing(self) -> None:
        """See asyncio."""
        self.paused_at = self._loop.time()
        self._answers.pause(is_paused=True)

    def resume_writing(self) -> None:
        """See asyncio."""
        self.paused_at = None
        if not self.is_over:
            self._answers.pause(is_paused=False)

    def eof_received(self) -> None:
        """See asyncio, which would first send what the caller may never read."""
        self._close_calls()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        del error
        self._close_calls()
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        self._owner.lost(self)

    # -- towards calls -------------------------------------------------------------------------------------------------

    def allow(self, stream: CallStream) -> None:
        """Allow the caller what is missing of a message."""
        more = stream.message.room()
        if more:
            self._answers.write(window_frame(stream.number, more))

    def answer(self, stream: CallStream, head: bytes, message: bytes, trailers: bytes | None) -> None:
        """Send an answer, or a part of one, unless its caller has gone."""
        if stream.number in self._answers.streams:
            self._answers.answer(stream, head, message, trailers)

    def end_call(self, stream: CallStream, block: bytes) -> None:
        """Send the block that ends a call."""
        if stream.number in self._answers.streams:
            self._answers.end(stream, block)

    def reset(self, stream: CallStream, code: ErrorCode) -> None:
        """End a stream by force, with the call on it."""
        if stream.number in self._answers.streams:
            self._answers.write(reset_frame(stream.number, code))
            self._ended_streams.add(stream.number, stream.message.may_send)
            stream.forget()
            self._forget(stream)

    # -- frames --------------------------------------------------------------------------------------------------------

    def _without_preface(self, data: bytes) -> bytes:
        data = self._preface + data
        if not PREFACE.startswith(data[: len(PREFACE)]):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "no HTTP/2")
        if len(data) < len(PREFACE):
            self._preface = data
            return b""
        self._has_preface, self._preface = True, b""
        return data[len(PREFACE) :]

    def _take_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self._has_settings and (kind != SETTINGS or flags & ACK):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "it does not begin with settings")
        continued = self._blocks.continues
        if continued is not None and (kind != CONTINUATION or number != continued):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block that is not continued")
        take = self._take.get(kind)
        if take is None:
            self._budget.spend()  # an extension, which is to be let pass
            return
        take(flags, number, payload)

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        fields = self._heads.read(block)  # of any stream, for the table's sake
        if number <= self._last:
            self._take_trailers(flags, number, block)
            return
        if not number % 2:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream that callers may not open")
        if self._leaves_at_last:  # it was told so, and will send the call elsewhere
            self._spend_on(block)
            return
        self._last = number
        if len(self._answers.streams) >= MAX_STREAMS:
            self._refuse(number, ErrorCode.REFUSED_STREAM)
            return
        try:
            head = read_head(fields)
        except Malformed:
            self._refuse(number, ErrorCode.PROTOCOL_ERROR)
            return
        message = IncomingMessage(
            HeldBody(self._serving.budget, self.address), self._serving.message_bytes, DEFAULT_WINDOW
        )
        stream = CallStream(number, head, message, self, since=self.heard_at, window=self._answers.initial_window)
        self._answers.streams[number] = stream
        self._begun.append(stream)
        if flags & END_STREAM:
            self._end_message(stream)

    def _take_trailers(self, flags: int, number: int, block: bytes) -> None:
        stream = self._open_stream(number)
        if stream is None:
            self._spend_on(block)
        elif not flags & END_STREAM:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a second header")
        else:
            self._end_message(stream)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._count_received(size)
        stream = self._open_stream(number)
        payload = unpadded(flags, payload)
        if len(payload) < SMALL_BYTES and not flags & END_STREAM:
            self._budget.spend()
        if stream is None:
            self._ended_streams.count(number, size)
            return
        message = stream.message
        message.may_send -= size
        if message.may_send < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, MORE_THAN_ITS_WINDOW)
        if payload:
            message.take(payload)
        if flags & END_STREAM:
            self._end_message(stream)
        elif message.is_awaited:
            self.allow(stream)

    def _take_reset(self, _flags: int, number: int, payload: bytes) -> None:
        number_in(payload)
        if not number or number > self._last:
            if number and self._leaves_at_last:
                self._budget.spend()
                return
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a reset of a stream that was not opened")
        stream = self._answers.streams.get(number)
        if stream is None:
            self._budget.spend()
            return
        if self.heard_at - stream.since < RAPID_SECONDS:
            self._resets.spend()
        stream.forget()
        self._forget(stream)

    def _take_priority(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PRIORITY_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a priority of a wrong size")
        if not number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a priority of the connection")
        self._budget.spend()

    def _take_push(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a push by a caller")

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        self._require_connection(number)
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement with settings")
            self._budget.spend()
            return
        if self._has_settings:
            self._budget.spend()
        values = dict(settings_in(payload))
        if values.get(ENABLE_PUSH, 0) > 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a setting that may not be")
        self._answers.settle(values)
        self._answers.reply(frame(SETTINGS, ACK, 0, b""))
        self._answers.resume()
        if not self._has_settings:
            self._has_settings = True
            if self.is_leaving:
                self._say_leaving()

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        self._require_connection(number)
        if len(payload) != _PING_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a ping of a wrong size")
        self._budget.spend()
        if not flags & ACK:
            self._answers.reply(frame(PING, ACK, 0, payload))
        elif payload == _LEAVING and self.is_leaving:
            self._say_last()

    def _take_window(self, _flags: int, number: int, payload: bytes) -> None:
        size = number_in(payload) & 0x7FFF_FFFF
        self._budget.spend()
        if not number:
            self._answers.grow(None, size)
            return
        if number > self._last:
            if self._leaves_at_last:
                return
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a window of a stream that was not opened")
        stream = self._answers.streams.get(number)
        if stream is not None:
            self._answers.grow(stream, size)

    def _take_goaway(self, _flags: int, number: int, payload: bytes) -> None:
        self._require_connection(number)
        if len(payload) < _GOAWAY_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a goaway of a wrong size")
        self._budget.spend()
        self.leave()

    # -- what they lead to ---------------------------------------------------------------------------------------------

    def _begin_calls(self) -> None:
        """Begin the calls that a read has brought: all in one turn, most with their messages."""
        begun, self._begun = self._begun, []
        streams = self._answers.streams
        for stream in begun:
            if stream.number in streams:
                stream.task = self._loop.create_task(self._serving.handle(stream))

    def _open_stream(self, number: int) -> CallStream | None:
        """Return an open stream; ``None``: it was ended by us, and what still comes for it is let pass.

        Raises:
            ConnectionFault: It was never opened, or the caller has ended it.
        """
        stream = self._answers.streams.get(number)
        if stream is None:
            if not number % 2 or (number > self._last and not self._leaves_at_last):
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame on a stream that was not opened")
            if number <= self._last:
                self._ended_streams.require(number)
        elif stream.has_ended:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "a frame on a stream that it has ended")
        return stream

    def _end_message(self, stream: CallStream) -> None:
        stream.has_ended = True
        stream.message.end()

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """Refuse to open a stream."""
        self._budget.spend()
        self._answers.reply(reset_frame(number, code))
        self._ended_streams.add(number, DEFAULT_WINDOW)

    def _spend_on(self, block: bytes) -> None:
        self._budget.spend(1 + len(block) // _HEAD_PART_BYTES)

    def _require_connection(self, number: int) -> None:
        if number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame of the connection on a stream")

    def _count_received(self, size: int) -> None:
        self._unreturned += size
        if self._unreturned >= RECEIVE_WINDOW // 4:
            self._answers.write(window_frame(0, self._unreturned))
            self._unreturned = 0

    def _on_sent(self, stream: CallStream) -> None:
        """A call was answered to its end."""
        self._budget.earn()
        if not stream.has_ended:  # it need not send the rest
            self._answers.write(reset_frame(stream.number, ErrorCode.NO_ERROR))
            self._ended_streams.add(stream.number, stream.message.may_send)
        stream.task = None
        self._forget(stream)

    def _forget(self, stream: CallStream) -> None:
        self._answers.forget(stream)
        if not self._answers.streams:
            self.idle_since = self._loop.time()
            self._end_if_left()

    def _say_leaving(self) -> None:
        self._answers.write(goaway_frame(ErrorCode.NO_ERROR, MAX_STREAM) + frame(PING, 0, 0, _LEAVING))
        self._leave_timer = self._loop.call_later(ROUND_TRIP_SECONDS, self._say_last)

    def _say_last(self) -> None:
        if self._leaves_at_last or self.is_over:
            return
        self._leaves_at_last = True
        self._answers.write(goaway_frame(ErrorCode.NO_ERROR, self._last))
        self._end_if_left()

    def _end_if_left(self) -> None:
        if self._leaves_at_last and not self._answers.streams and not self.is_over:
            self.is_over = True
            self._close()

    def _close(self) -> None:
        """Leave it to its caller to close the connection, for a moment."""
        self.is_over = True
        self._answers.flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS says so itself, and waits for its caller's word
            transport.close()
        self._loop.call_later(LINGER_SECONDS, transport.abort)

    def _close_calls(self) -> None:
        self.is_over = True
        self._begun.clear()
        for stream in self._answers.clear():
            stream.forget()
