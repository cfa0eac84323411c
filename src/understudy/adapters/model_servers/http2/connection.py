"""One connection of HTTP/2 to a model server: reads its frames, and ends with a reason when the server breaks rules."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from understudy.adapters.http2.connection_frames import (
    PING_BYTES,
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
    MAX_HEADER_LIST_SIZE,
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
    settings_frame,
    window_frame,
)
from understudy.adapters.http2.header_blocks import MAX_HEAD_BYTES
from understudy.adapters.model_servers.http2 import failures
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.inbox import RECEIVE_WINDOW, Inbox
from understudy.adapters.model_servers.http2.outbox import Outbox

MAX_UNREAD_BYTES = 65_536
"""Of replies that a server asks for while it leaves unread what was sent before."""
LINGER_SECONDS = 1.0
SILENT_SECONDS = 5
"""How long what we sent may stay unacknowledged by the peer's kernel: what finds a peer that vanished."""
_SETTINGS = {HEADER_TABLE_SIZE: 0, ENABLE_PUSH: 0, MAX_HEADER_LIST_SIZE: MAX_HEAD_BYTES}
_HELLO = PREFACE + settings_frame(_SETTINGS) + window_frame(0, RECEIVE_WINDOW - DEFAULT_WINDOW)
_TOO_MANY_PINGS = (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings")


class Owner(Protocol):
    """What opened a connection."""

    def retired(self, connection: "Http2Connection") -> None:
        """Send no further calls on a connection: the server will end it, or it has ended."""

    def place(self, call: UnaryCall) -> None:
        """Find another connection for a call that the server has not taken."""


class Http2Connection(asyncio.Protocol):
    """A connection; what it reads is in ``_take_…``, by kind of frame."""

    def __init__(self, owner: Owner) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._budget = FrameBudget(self._loop.time)
        self._outbox = Outbox(self._budget.earn)
        self._reader = FrameReader()
        self._unread = 0
        self._inbox = Inbox(self._outbox, self._budget, self._move, self._on_end)
        self.hello: asyncio.Future[None] = self._loop.create_future()
        """Done once the server has told its settings; raises ``ConnectionError``."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done once there is nothing more to come."""
        self.why_retired: str | None = None
        """Why it gets no further calls; ``None``: it may get some."""
        self.is_over = False
        self.has_pinged_too_often = False
        """By what the server says as it goes away."""
        self.heard_at = self._loop.time()
        self._take: dict[int, Callable[[int, int, bytes], None]] = {
            DATA: self._inbox.take_data,
            HEADERS: self._inbox.blocks.take_headers,
            PRIORITY: self._take_priority,
            RST_STREAM: self._inbox.take_reset,
            SETTINGS: self._take_settings,
            PUSH_PROMISE: self._take_push,
            PING: self._take_ping,
            GOAWAY: self._take_goaway,
            WINDOW_UPDATE: self._take_window,
            CONTINUATION: self._inbox.blocks.take_continuation,
        }

    # -- towards the channel -------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Calls that it has in hand."""
        return len(self._outbox.streams) + len(self._outbox.pending)

    def start(self, call: UnaryCall) -> None:
        """Send a call, as soon as the server takes it."""
        call.holder = self
        self._outbox.start(call)
        if self._outbox.is_used_up:
            self._on_used_up()

    def drop(self, call: UnaryCall) -> None:
        """Forget a call whose caller waits no longer, and tell the server."""
        self._outbox.pending.pop(call, None)
        stream = self._outbox.streams.get(call.number)
        if stream is not None:
            self._inbox.reset(stream, ErrorCode.CANCEL)

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._outbox.write(frame(PING, 0, 0, bytes(PING_BYTES)))

    def leave(self) -> None:
        """Take no more calls, and end once those in hand have ended."""
        self._retire("the channel is being closed")
        self._on_end()

    def end(self, why: str, failure: Callable[[], Exception] | None = None) -> None:
        """End the connection and what is under way on it; with ``failure`` also what it would move elsewhere."""
        self._over(why, ErrorCode.NO_ERROR, failure)

    # -- asyncio's protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        plain = transport.get_extra_info("socket")
        if plain is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1_000)
        self._outbox.attach(self._transport)
        self._transport.write(_HELLO)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self.heard_at = self._loop.time()
        try:
            for kind, flags, number, payload in self._reader.cut(data):
                if self.is_over:
                    return
                self._take_frame(kind, flags, number, payload)
        except ConnectionFault as fault:
            self._over(f"the model server broke the rules of HTTP/2: {fault.why}", fault.code)

    def pause_writing(self) -> None:
        """See asyncio."""
        self._outbox.pause(is_paused=True)

    def resume_writing(self) -> None:
        """See asyncio."""
        if not self.is_over:
            self._outbox.pause(is_paused=False)

    def eof_received(self) -> None:
        """See asyncio, which would first send what the server may never read."""
        self._over("the connection was closed")

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self._over(f"the connection was lost ({type(error).__name__})" if error else "the connection was closed")

    # -- frames --------------------------------------------------------------------------------------------------------

    def _take_frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        require_order(kind, flags, number, has_settings=self.hello.done(), continued=self._inbox.blocks.continues)
        take = self._take.get(kind)
        if take is None:
            self._budget.spend()  # an extension, which is to be let pass
            return
        take(flags, number, payload)

    def _take_priority(self, _flags: int, _number: int, _payload: bytes) -> None:
        self._budget.spend()

    def _take_push(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a push, which was refused")

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        values = settings_told(flags, number, payload)
        if values is None or self.hello.done():
            self._budget.spend()
        if values is None:
            return
        self._outbox.settle(values)
        self._reply(frame(SETTINGS, ACK, 0, b""))
        self._outbox.resume()  # a server counts by its settings once it has read that we know them
        if not self.hello.done():
            self.hello.set_result(None)

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        require_ping(number, payload)
        self._budget.spend()
        if not flags & ACK:
            self._reply(frame(PING, ACK, 0, payload))

    def _take_window(self, _flags: int, number: int, payload: bytes) -> None:
        size = window_told(payload)
        self._budget.spend()
        if not number:
            self._outbox.grow(None, size)
            return
        self._inbox.require_opened(number)
        stream = self._outbox.streams.get(number)
        if stream is not None:
            self._outbox.grow(stream, size)

    def _take_goaway(self, _flags: int, number: int, payload: bytes) -> None:
        told = goaway_told(number, payload)
        self._budget.spend()
        self.has_pinged_too_often = (told.code, told.why) == _TOO_MANY_PINGS
        self._retire("the server takes no more calls on the connection")
        self._move_pending()
        for stream in [stream for number, stream in self._outbox.streams.items() if number > told.last]:
            self._inbox.give_back(stream, failures.lost(f"the model server ends the connection (code {told.code})"))
        self._on_end()

    # -- what they lead to ---------------------------------------------------------------------------------------------

    def _move(self, call: UnaryCall) -> None:
        call.number = 0
        call.holder = None
        self._owner.place(call)

    def _move_pending(self) -> None:
        pending = tuple(self._outbox.pending)
        self._outbox.pending.clear()
        is_behind_others = self._outbox.last_number > 0  # or else the server takes no calls at all
        for call in pending:
            if is_behind_others or call.try_move():
                self._move(call)
            else:
                call.settle(failures.lost("the model server ends its connections"))

    def _reply(self, data: bytes) -> None:
        assert self._transport is not None
        self._unread = self._unread + len(data) if self._outbox.is_paused else 0
        if self._unread > MAX_UNREAD_BYTES:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "it reads no replies")
        self._transport.write(data)

    def _retire(self, why: str) -> None:
        if self.why_retired is None:
            self.why_retired = why
            self._owner.retired(self)

    def _on_used_up(self) -> None:
        self._retire("the connection has no more streams")
        self._move_pending()

    def _on_end(self) -> None:
        if self._outbox.is_used_up and self._outbox.pending:  # a call that had waited has got the last number
            self._on_used_up()
        if self.why_retired is not None and not self.in_flight:
            self._over("the connection has ended")

    def _over(
        self, why: str, code: ErrorCode = ErrorCode.NO_ERROR, failure: Callable[[], Exception] | None = None
    ) -> None:
        """End the connection, if it has not, with every call that it has in hand."""
        if self.is_over:
            return
        self.is_over = True
        self.ended.set_result(None)
        self._close(code)
        if not self.hello.done():
            self.hello.set_exception(ConnectionError(why))
            self.hello.exception()  # retrieved, whether or not it is still waited for
        self.why_retired = self.why_retired or why
        self._owner.retired(self)  # told again: it need not keep it any longer
        if failure is None:
            self._move_pending()
        for call in self._outbox.clear():
            call.settle(failures.lost(why) if failure is None else failure())

    def _close(self, code: ErrorCode) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(goaway_frame(code))
        transport.close()
        self._loop.call_later(LINGER_SECONDS, transport.abort)
