"""uvicorn's connection, where nobody waits for ever for a request that does not arrive, and plain calls go express."""

import asyncio
import select
from functools import partial
from http import HTTPStatus
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH, FastPath, model_of
from understudy.entrypoints.proxy.server.response_writer import (
    WRITE_WHOLE,
    FastPathCycle,
    last_text_answer,
    write_whole,
)
from understudy.entrypoints.proxy.server.slow_readers import SlowReaderGuard
from understudy.serving.batching import TIMER_SECONDS

DRAINING = "understudy.draining"
"""Set in the server's state once its process is to end: each connection's next answer is its last one."""
TURN_BYTES = 4_096
"""What one connection may have read in a turn of the event loop, when requests end in it: a dozen predict calls, or 150
of the least requests there are."""
MAX_HEAD = 65_536
"""Bytes of a request's head, or of what follows its body, beside those of the read that it began in."""
_HEAD_TOO_LONG = b"The head of the request is too long: at most 65536 bytes of target and headers."
_WISHES = frozenset((b"upgrade", b"http2-settings"))
"""Header fields by which a caller asks for another protocol, and what it names in ``connection`` then."""


class Connection(HttpToolsProtocol):
    """Closes itself when a request's headers take too long, or none comes at all; its first ``receive`` never waits.

    uvicorn bounds only the pause between two requests, and forgets that with the first byte of the next. The body's own
    bound is where it is read: the first message is what has come with the headers, so that only a body in pieces costs
    a timer.

    A caller that would like another protocol, as Java's own client does with its first call, is answered in this one
    (RFC 9110 §7.8), with its body: uvicorn's parser takes such a request to end with its headers.

    A predict call that arrives in one piece is offered to the express lane before there is anything of ASGI. What that
    declines, and what comes in several pieces or asks for more than an answer, is handed over to uvicorn as if nothing
    had been.

    A head has so many bytes and no more, and an answer is read in time, or the connection is broken off. Fields behind
    a body in chunks (trailers) are dropped: nothing here asks for them, and a request's headers are complete before.

    Requests that a caller sent without waiting for answers are read a few in a turn of the event loop, and further ones
    when those are answered, so that nobody else waits for all of them.

    While the process ends (:meth:`drain`), the answer to the last request says that it is the last one, and a
    connection without a request stays open for one that is on its way.

    Args:
        receive_seconds: Longest time from the first byte of a request until its headers are complete, and longest time
            that a caller may read nothing of answers that do not fit into the buffers.
        arguments: As uvicorn gives them to its own class.
    """

    def __init__(self, *, receive_seconds: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._receive_seconds = receive_seconds
        self._receiving: asyncio.TimerHandle | None = None
        self._express: FastPath | None = self.app_state.get(FAST_PATH)
        self._held: list[bytes] | None = None
        """Pieces of the body of a request that may go express; ``None`` for any other request."""
        self._held_is_whole = False
        self._idle_since: float | None = None
        """Since when there is no request, in the event loop's time."""
        self._is_in_head = False
        self._has_progressed = False
        """Whether the bytes that came last began or ended a request or its head, or were of its body."""
        self._has_ended = False
        """Whether a request ended in them."""
        self._stagnant_bytes = 0
        """What has come since the last such progress: of a head, or of trailers."""
        self._unread: SlowReaderGuard
        self._is_between = True
        """Whether the parser has had the last byte of a request, and none of the next one."""
        self._asks_for_another = False
        """Whether the request that is read would like another protocol: it is read again as if it had not asked."""
        self._rest = bytearray()
        """What came and is not read yet, since there is more in it than a turn may read."""
        self._is_reading_on = False
        """Whether the next turn reads of it."""
        self._is_draining = False
        self._flow: _Flow
        self._last: RequestResponseCycle | FastPathCycle | None = None
        """The request whose answer is to be the last one."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a first request as long as for a next one."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn says more exactly which it is
        self.flow = self._flow = _Flow(self.transport)
        self._is_draining = DRAINING in self.app_state  # not before: what was accepted is made in a later turn
        self._unread = SlowReaderGuard(self.transport, self.loop, self._receive_seconds)
        self._await_request()

    # -- what the parser calls -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Make nothing yet that only ASGI needs."""
        self._is_between = False
        self._is_in_head = self._has_progressed = True
        if self._held is not None:
            self._let_go(is_last=False)
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._asks_for_another = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but no trailer."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hold what may go express until it is there as a whole."""
        self._is_in_head = False
        self._has_progressed = True
        self._asks_for_another = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._asks_for_another:
            return
        if self._may_go_express():
            self._held = []
        else:
            self._hand_over()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._has_progressed = True
        if self._held is None:
            super().on_body(body)
        else:
            self._held.append(body)

    def on_message_complete(self) -> None:
        """Go on holding what may go express: what follows it in the same piece may be no request."""
        self._is_between = self._has_progressed = self._has_ended = True
        if self._held is not None:
            self._held_is_whole = True
        elif not self._asks_for_another:
            super().on_message_complete()

    def _may_go_express(self) -> bool:
        return (
            self._express is not None
            and self.parser.get_method() == b"POST"
            and model_of(self.url) is not None
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.expect_100_continue
            and self._is_free()
        )

    def _is_free(self) -> bool:
        """Whether all earlier requests are answered, and the caller has read enough of that."""
        cycle = self.cycle
        return not self.flow.write_paused and (cycle is None or cycle.response_complete)  # type: ignore[redundant-expr]  # there is none at first

    def _let_go(self, read: bytes = b"", *, is_last: bool = True) -> None:
        """Offer a held request to the express lane, or hand over what there is of it.

        Args:
            read: All of it as it was read, when it came in one read and nothing else did.
            is_last: Whether nothing has come behind it.
        """
        held, self._held = self._held, None
        is_whole, self._held_is_whole = self._held_is_whole, False
        assert held is not None
        body = held[0] if len(held) == 1 else b"".join(held)
        if is_whole and not self.transport.is_closing() and self._go_express(body, read, is_last=is_last):
            return
        self._hand_over()
        if body:
            super().on_body(body)
        if is_whole:
            super().on_message_complete()

    def _go_express(self, body: bytes, read: bytes, *, is_last: bool) -> bool:
        assert self._express is not None
        self._unset_keepalive_if_required()  # an earlier answer of the same piece may have set it
        before, cycle = self.cycle, FastPathCycle(self)
        if self._is_draining and is_last:
            self._end_with(cycle)  # before it is offered: it may be answered at once
        self.cycle = cycle  # type: ignore[assignment]  # it has what uvicorn uses of one
        if self._express.offer(self.url, self.headers, body, cycle, read):
            return True
        self.cycle = before
        return False

    def _go_known(self, read: bytes) -> bool:
        """Let a request go express that came whole and whose head was met before; the parser never sees it."""
        if self._express is None or not self._is_between or not self._is_free() or self.transport.is_closing():
            return False
        known = self._express.find_cached(read)
        if known is None:
            return False
        cycle = FastPathCycle(self)
        self.cycle = cycle  # type: ignore[assignment]  # as above
        if self._is_draining:
            self._end_with(cycle)
        self._express.answer_cached(*known, cycle)
        self._stop_clock()  # empty lines may have come before it
        return True

    def _hand_over(self) -> None:
        """Let uvicorn have the request whose headers are complete, and the application a short way to answer."""
        self._unset_keepalive_if_required()  # as above
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers  # the list that the scope has
        super().on_headers_complete()
        self.scope[WRITE_WHOLE] = partial(write_whole, self.cycle)  # type: ignore[literal-required]  # an addition
        self.cycle.message_event.set()

    # -- what the event loop calls -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read what has come, or as much of it as a turn may."""
        if self._rest:
            self._rest += data
            self.flow.pause_reading()
            return
        self._unset_keepalive_if_required()
        if self._go_known(data):
            return
        self._read(data)

    def _read(self, data: bytes) -> None:
        """Read requests; start the clock when bytes do not make a request yet, stop it when they do."""
        is_beginning = self._is_between and self._held is None
        if not self._read_turn(data):
            return
        is_whole = self._held is not None and self._held_is_whole
        if self._held is not None:
            self._let_go(data if is_beginning else b"")
        if self._is_draining:
            self._end_with_what_came()
        if is_whole:
            # Nothing has come after it, and it may be answered already: the next bytes are those of a new request.
            self._stop_clock()
        elif self.cycle is not None and not self.cycle.response_complete:  # type: ignore[redundant-expr]  # none at first
            self._stop_clock()
        elif self._has_ended and self._is_between:
            self._stop_clock()
            self._await_request()  # the rest of a request that was answered early
        else:
            self._start_clock()

    def _read_turn(self, data: bytes) -> bool:
        """Parse what a turn may; return whether that was all of it, and no head too long.

        It ends where a request did: a long body is parsed at once.
        """
        for start in range(0, len(data), TURN_BYTES):
            piece = data if len(data) <= TURN_BYTES else data[start : start + TURN_BYTES]
            self._has_progressed = self._has_ended = False
            is_over = not self._parse(piece)
            if self._is_too_long(len(piece)):
                self._refuse_head()
                return False
            if is_over or self.transport.is_closing():
                return True
            end = start + TURN_BYTES
            if self._has_ended and end < len(data):
                self._stop_clock()
                self._rest += memoryview(data)[end:]
                self._flow.is_held = True
                self.flow.pause_reading()
                self._read_on_when_free()
                return False
        return True

    def _read_on_when_free(self) -> None:
        """Read of the rest in the next turn, or when what was read of it is being answered but for its last request."""
        if not self._is_reading_on and not self.pipeline:
            self._is_reading_on = True
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_reading_on = False
        rest, self._rest = bytes(self._rest), bytearray()
        self._flow.is_held = False
        if self.transport.is_closing() or self.parser is None:
            return
        self._unset_keepalive_if_required()
        self._read(rest)
        if not self._rest and not self.pipeline:
            self.flow.resume_reading()

    def _is_too_long(self, size: int) -> bool:
        """Whether a head, or trailers, have gone on for too long with these bytes."""
        self._stagnant_bytes = 0 if self._has_progressed or self._is_between else self._stagnant_bytes + size
        return self._stagnant_bytes > MAX_HEAD

    def _refuse_head(self) -> None:
        self._stop_clock()
        if self._is_free():  # an answer under way would be cut in two
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.transport.write(last_text_answer(status, self.server_state.default_headers, _HEAD_TOO_LONG))
        self._close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        super().send_400_response(msg)
        self._unread.begin()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection on which a request did not arrive in time."""
        self._close()

    # -- waiting for the caller to read --------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Wait for the caller to read."""
        super().pause_writing()
        self._unread.begin()

    def resume_writing(self) -> None:
        """Go on: the caller has read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._unread.end()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
        self._unread.begin()

    def _parse(self, data: bytes) -> bool:
        """Parse some bytes; return whether more may follow."""
        while True:
            try:
                self.parser.feed_data(data)
            except HttpParserUpgrade as wish:
                if not self._asks_for_another:
                    return False  # CONNECT, which is answered; what follows is not for this server
                data = self._head_without_wish() + data[wish.args[0] :]
            except HttpParserError:
                message = "Invalid HTTP request received."
                self.logger.warning(message)
                self.send_400_response(message)
                return False
            else:
                return True

    def _head_without_wish(self) -> bytes:
        """Return the request's head as if it asked for no other protocol, and begin anew with reading."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token for token in value.split(b",") if token.strip().lower() not in _WISHES]
                lines.append(b"connection:" + b",".join(tokens))
            elif name not in _WISHES:
                lines.append(b"%b: %b" % (name, value))
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return b"\r\n".join((*lines, b"", b""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop_clock()
        self._unread.end()
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    # -- the end of the process ----------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Answer what was asked and what is on its way, and say with the last answer that it is the last one."""
        self._is_draining = True
        self._end_with_what_came()

    def shutdown(self) -> None:
        """Close a connection that has no request; one that has, or whose bytes have come, is answered before.

        A request that leaves its caller in this very moment finds the connection closed. HTTP/1.1 has no word for a
        server to announce that in advance but in an answer: who asked nothing while the process drained was told
        nothing.
        """
        self.drain()
        is_answered = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # none at first
        if not is_answered or not self._is_between or self._rest or self.transport.is_closing():
            return
        if not _has_come(self.transport):
            self._close()

    def _end_with_what_came(self) -> None:
        """Let the answer to the request that came last be the last one, once it is there as a whole."""
        if self.cycle is not None and self._is_between and not self._rest and self._held is None:  # type: ignore[redundant-expr]  # none at first
            self._end_with(self.cycle)

    def _end_with(self, cycle: "RequestResponseCycle | FastPathCycle") -> None:
        """Let the answer to this request be the last one, unless it has begun; one that was to be before it is not."""
        if cycle is self._last:
            return
        if self._last is not None and not self._last.response_started:
            self._last.keep_alive = True
        self._last = None
        if cycle.keep_alive and not cycle.response_started:
            cycle.keep_alive = False
            self._last = cycle

    # -- waiting for a next request ------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Begin the next request, or wait for one: as uvicorn does, but without a timer for each."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            if self.transport.is_closing():
                self._unread.begin()
            elif self._rest:
                self._read_on_when_free()
            return
        self.server_state.total_requests += 1
        if self._rest:
            self._read_on_when_free()
            return
        self.flow.resume_reading()
        if self._is_between:
            self._await_request()
        else:
            self._start_clock()  # the next request has begun to arrive

    def _await_request(self) -> None:
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _unset_keepalive_if_required(self) -> None:
        """Wait no more; the timer goes on and finds out when it comes."""
        self._idle_since = None

    def _end_if_idle(self) -> None:
        """Close when there was no request for long enough, else look again when that may be so."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        idle_seconds = self.loop.time() - self._idle_since if self._idle_since is not None else 0.0
        left = self.timeout_keep_alive - idle_seconds
        if left > TIMER_SECONDS:
            self.timeout_keep_alive_task = self.loop.call_later(left, self._end_if_idle)
        else:
            self._close()

    def _start_clock(self) -> None:
        if self._receiving is None:
            self._receiving = self.loop.call_later(self._receive_seconds, self.timeout_keep_alive_handler)

    def _stop_clock(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None


class _Flow(FlowControl):
    """A connection's flow, which does not go on reading while there is a rest that was read and not parsed."""

    is_held = False

    def resume_reading(self) -> None:
        """Read on, if nothing is left of what was read."""
        if not self.is_held:
            super().resume_reading()


def _has_come(transport: asyncio.Transport) -> bool:
    """Whether bytes have come, or the end of them, that the event loop did not read yet."""
    looking = select.poll()
    looking.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(looking.poll(0))
