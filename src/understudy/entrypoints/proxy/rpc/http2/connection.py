"""One connection of a caller: reads its frames, and ends when rules are broken, or gracefully."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Protocol, cast

from understudy.adapters.http2.connection_frames import (
    goaway_told,
    require_order,
    require_ping,
    settings_told,
    window_told,
)
from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
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
    Frame,
    FrameReader,
    frame,
    goaway_frame,
    settings_frame,
    window_frame,
)
from understudy.entrypoints.proxy.overload.overload import counted_address
from understudy.entrypoints.proxy.rpc.http2.calls import MAX_STREAMS, RECEIVE_WINDOW, Calls, Serving
from understudy.entrypoints.proxy.rpc.http2.request_head import MAX_METADATA_BYTES

LINGER_SECONDS = 1.0
"""For which a connection that has ended is left to its caller to close: what it sends meanwhile would have the kernel
reset it, and the last answers with it."""
ROUND_TRIP_SECONDS = 10.0
"""For which a caller may take to say that it has read of the end, before its further calls are not taken."""
SILENT_SECONDS = 20
"""How long what we sent may stay unacknowledged by the peer's kernel, and a ping by the peer."""
TURN_FIELDS = 4_000
"""Of headers that a connection may have read in a turn of the event loop: more than 200 calls at once; 30 ms where
they are read by ``hpack``."""
_SETTINGS = {
    HEADER_TABLE_SIZE: 0,
    MAX_CONCURRENT_STREAMS: MAX_STREAMS,
    MAX_HEADER_LIST_SIZE: MAX_METADATA_BYTES,
}
_HELLO = settings_frame(_SETTINGS) + window_frame(0, RECEIVE_WINDOW - DEFAULT_WINDOW)
_PRIORITY_BYTES = 5
_LEAVING, _ALIVE = b"leaving.", b"alive..."
"""What our pings carry."""


class Owner(Protocol):
    """What accepted a connection."""

    def lost(self, connection: "Http2Connection") -> None:
        """Hold a connection no longer."""


class Http2Connection(asyncio.Protocol):
    """A connection; what it reads is in ``_take_…``, by kind of frame."""

    def __init__(self, owner: Owner, serving: Serving) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._budget = FrameBudget(self._loop.time)
        self._calls = Calls(serving, self._budget, self._on_no_calls)
        self._answers = self._calls.answers
        self._reader = FrameReader()
        self._frames: Iterator[Frame] | None = None
        """Those of what was read that have not been taken."""
        self._behind = b""
        """What was read behind them."""
        self._preface = b""
        self._has_preface = self._has_settings = False
        self._leave_timer: asyncio.TimerHandle | None = None
        self.is_leaving = False
        """Whether its caller was told to send its further calls elsewhere, or will be."""
        self.is_over = False
        self.heard_at = self.idle_since = self._loop.time()
        self.paused_at: float | None = None
        """Since when the socket takes nothing more."""
        self.pinged_at: float | None = None
        self._take: dict[int, Callable[[int, int, bytes], None]] = {
            DATA: self._calls.take_data,
            HEADERS: self._calls.blocks.take_headers,
            PRIORITY: self._take_priority,
            RST_STREAM: self._calls.take_reset,
            SETTINGS: self._take_settings,
            PUSH_PROMISE: self._take_push,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window,
            CONTINUATION: self._calls.blocks.take_continuation,
        }

    # -- towards the port ----------------------------------------------------------------------------------------------

    @property
    def is_greeted(self) -> bool:
        """Whether its caller has said that it speaks HTTP/2, and how."""
        return self._has_settings

    @property
    def is_in_header(self) -> bool:
        """Whether a header block has begun, and not come to its end."""
        return self._calls.blocks.continues is not None

    @property
    def calls(self) -> int:
        """How many have not been answered to their end."""
        return len(self._answers.streams)

    @property
    def transport(self) -> asyncio.Transport:
        """What it is on."""
        assert self._transport is not None
        return self._transport

    @property
    def unsent_bytes(self) -> int:
        """How many wait for its socket to take them."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

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
        self._calls.end_messages()

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self.pinged_at = self._loop.time()
        self._answers.write(frame(PING, 0, 0, _ALIVE))

    def end(self, code: ErrorCode = ErrorCode.NO_ERROR, why: str = "") -> None:
        """End the connection, with every call on it."""
        if self.is_over:
            return
        self._close_calls()
        self._answers.write(goaway_frame(code, self._calls.last, why.encode()))
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
        self._calls.address = counted_address(transport.get_extra_info("peername"))
        plain = transport.get_extra_info("socket")
        if plain is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1_000)
        self._answers.attach(self._transport)
        self._transport.write(_HELLO)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self.is_over:
            return
        self.heard_at = self._calls.read_at = self._loop.time()
        self.pinged_at = None
        try:
            if not self._has_preface:
                data = self._without_preface(data)
        except ConnectionFault as fault:
            self.end(fault.code, fault.why)
            return
        if self._frames is None:
            self._frames = self._reader.cut(data)
            self._take_turn()
        else:  # it came in spite of the pause
            self._behind += data

    def _take_turn(self) -> None:
        """Take frames, and leave those beyond a turn's to the next one, so that other connections have theirs.

        Meanwhile nothing is read: uvloop would read on within its turn for as long as more comes.
        """
        if self.is_over or self._frames is None:
            return
        if not self._calls.turn_fields:
            self._loop.call_soon(self._begin_turn)
        try:
            for kind, flags, number, payload in self._frames:
                self._take_frame(kind, flags, number, payload)
                if self.is_over:
                    return
                if self._calls.turn_fields > TURN_FIELDS:
                    self._plan_turn()
                    break
            else:
                self._end_turn()
        except ConnectionFault as fault:
            self.end(fault.code, fault.why)
        self._calls.begin()

    def _begin_turn(self) -> None:
        self._calls.turn_fields = 0

    def _plan_turn(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()
            self._loop.call_soon(self._take_turn)

    def _end_turn(self) -> None:
        self._frames = None
        if self._behind:
            data, self._behind = self._behind, b""
            self._frames = self._reader.cut(data)
            self._plan_turn()
        elif not self.transport.is_reading() and not self.transport.is_closing():
            self.transport.resume_reading()

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
        """See asyncio, which would first send what the caller may never read: it has a moment for that."""
        if not self.is_over and self._transport is not None:
            self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        self._close_calls()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        del error
        self._close_calls()
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        self._owner.lost(self)

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
        require_order(kind, flags, number, has_settings=self._has_settings, continued=self._calls.blocks.continues)
        take = self._take.get(kind)
        if take is None:
            self._budget.spend()  # an extension, which is to be let pass
            return
        take(flags, number, payload)

    def _take_priority(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _PRIORITY_BYTES:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a priority of a wrong size")
        if not number:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a priority of the connection")
        self._budget.spend()

    def _take_push(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a push by a caller")

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        values = settings_told(flags, number, payload)
        if values is None or self._has_settings:
            self._budget.spend()
        if values is None:
            return
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
        require_ping(number, payload)
        self._budget.spend()
        if not flags & ACK:
            self._answers.reply(frame(PING, ACK, 0, payload))
        elif payload == _LEAVING and self.is_leaving:
            self._say_last()

    def _take_window(self, _flags: int, number: int, payload: bytes) -> None:
        size = window_told(payload)
        self._budget.spend()
        if not number:
            self._answers.grow(None, size)
            return
        stream = self._calls.opened(number)
        if stream is not None:
            self._answers.grow(stream, size)

    def _take_goaway(self, _flags: int, number: int, payload: bytes) -> None:
        goaway_told(number, payload)
        self._budget.spend()
        self.leave()

    # -- what they lead to ---------------------------------------------------------------------------------------------

    def _on_no_calls(self) -> None:
        self.idle_since = self._loop.time()
        self._end_if_left()

    def _say_leaving(self) -> None:
        self._answers.write(goaway_frame(ErrorCode.NO_ERROR, MAX_STREAM) + frame(PING, 0, 0, _LEAVING))
        self._leave_timer = self._loop.call_later(ROUND_TRIP_SECONDS, self._say_last)

    def _say_last(self) -> None:
        if not self._calls.takes_more or self.is_over:
            return
        self._calls.takes_more = False
        self._answers.write(goaway_frame(ErrorCode.NO_ERROR, self._calls.last))
        self._end_if_left()

    def _end_if_left(self) -> None:
        if not self._calls.takes_more and not self.calls and not self.is_over:
            self._close(SILENT_SECONDS)

    def _close(self, seconds: float = 0.0) -> None:
        """Leave it to its caller to close the connection, for a moment, and for so long while it takes its answers."""
        self.is_over = True
        self._answers.flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
        else:  # TLS says so itself, and waits for its caller's word
            transport.close()
        self._loop.call_later(LINGER_SECONDS, self._let_go, self._loop.time() + seconds, self.unsent_bytes)

    def _let_go(self, due: float, unsent_bytes: int) -> None:
        """End it, once its caller has taken its answers and has had a moment to close it, or takes too long."""
        if unsent_bytes and self._loop.time() < due:
            self._loop.call_later(LINGER_SECONDS, self._let_go, due, self.unsent_bytes)
        else:
            self.transport.abort()

    def _close_calls(self) -> None:
        self.is_over = True
        self._calls.clear()
