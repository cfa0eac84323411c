"""HTTP/1.1 protocol on top of uvicorn's: read timeouts, and a fast path for predict calls that bypasses ASGI."""

import asyncio
from http import HTTPStatus
from typing import Any

from understudy.entrypoints.proxy.messages.headers import RawHeaders
from understudy.entrypoints.proxy.messages.reply import JSON
from understudy.entrypoints.proxy.server.backpressure import TURN_BYTES, Backlog, has_unread_bytes, is_answered, is_free
from understudy.entrypoints.proxy.server.head_reader import WholeRequest, read_whole
from understudy.entrypoints.proxy.server.head_rules import NO_RULES, HeadRules
from understudy.entrypoints.proxy.server.parser_callbacks import ParserCallbacks
from understudy.entrypoints.proxy.server.request_state import State
from understudy.entrypoints.proxy.server.response_writer import FastPathCycle, last_text_answer
from understudy.entrypoints.proxy.server.slow_readers import SlowReaderGuard
from understudy.entrypoints.proxy.server.timeouts import KeepAliveTimeout, ReadTimeout
from understudy.entrypoints.proxy.server.upgrade import parse

DRAINING = "understudy.draining"
"""Set in the server's state while its process shuts down: each connection's next answer is its last one."""
MAX_HEAD = 65_536
"""Bytes of a request's head, or of what follows its body, beside those of the read that it began in."""
_HEAD_TOO_LONG = b"The head of the request is too long: at most 65536 bytes of target and headers."
_IDLE, _HEAD, _HOLDING, _HELD, _BODY, _ = State


class Connection(ParserCallbacks):
    """Reads requests and writes answers within bounds of time and bytes; :class:`ParserCallbacks` follows each request.

    - **Fast path.** A predict call that arrives whole is offered to it before anything of ASGI is made; a plain one in
      one read is not even parsed (:mod:`.head_reader`). What it declines, what comes in several pieces and what asks
      for more than an answer goes to uvicorn's ASGI cycle, whose first ``receive`` is ready.
    - **Slow-loris.** A request's head has a read timeout and a limit of bytes; uvicorn bounds only the pause between
      two requests. The body's timeout is where it is read. A caller that takes none of its answers is disconnected.
    - **Backpressure** (:class:`Backlog`). Pipelined requests are parsed a few in a turn of the event loop, and further
      ones are read when those are answered.
    - **Upgrade.** A request that asks for another protocol is answered in this one, with its body.
    - **Graceful shutdown** (:meth:`drain`). The answer to the last request says that it is the last one, and a
      connection without a request stays open for one that is on its way.

    Args:
        receive_seconds: Longest time from the first byte of a request until its head is complete, and longest time in
            which a caller may take nothing of answers that do not fit into the buffers.
        head_rules: A request whose head breaks one is answered in its turn with that error, as the last one.
        arguments: As uvicorn gives them to its own class.
    """

    def __init__(self, *, receive_seconds: float, head_rules: HeadRules = NO_RULES, **arguments: Any) -> None:
        super().__init__(head_rules=head_rules, **arguments)
        self._receive_seconds = receive_seconds
        self._passed_host: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a first request as long as for a next one."""
        super().connection_made(transport)  # type: ignore[arg-type]  # uvicorn says more exactly which it is
        self.flow = self._backlog = Backlog(self.transport, self.loop, self.pipeline)
        self._last.is_draining = DRAINING in self.app_state  # not before: what was accepted is made in a later turn
        self._slow_reader = SlowReaderGuard(self.transport, self.loop, self._receive_seconds)
        self._read_timeout = ReadTimeout(self.loop, self._receive_seconds, self._end_late)
        self._keep_alive = KeepAliveTimeout(self.loop, self.timeout_keep_alive, self._slow_reader.close)
        self._keep_alive.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._read_timeout.stop()
        self._slow_reader.stop()
        super().connection_lost(exc)
        self._keep_alive.stop()

    # -- reading, a turn of the event loop at a time -------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has come, or as much of it as a turn may."""
        if self._backlog.unparsed:
            self._backlog.add(data)
            return
        self._keep_alive.idle_since = None
        cycle = self.cycle
        is_next = self._state is _IDLE and (cycle is None or cycle.response_complete)  # type: ignore[redundant-expr]  # there is none at first
        if is_next and self._fast_path is not None and not self.flow.write_paused and not self.transport.is_closing():
            request = read_whole(data)
            if request is not None and self._takes(request):
                return  # the HTTP parser never sees it
        self._read(data)

    def _takes(self, request: WholeRequest) -> bool:
        """Whether a plain call passes the rules, and the fast path takes it; the parser's way says why not."""
        fields = request.fields
        host = fields.get(b"host")
        # Rules that let a host pass have nothing against a body of JSON for it, either.
        if host is None or host != self._passed_host or fields.get(b"content-type") != JSON[1]:
            if host is None or self._head_rules.problem_of_plain(b"POST", fields) is not None:
                return False
            self._passed_host = host
        if not self._offer(request.target, fields, request.body, is_last=True):
            return False
        if self._read_timeout.timer is not None:
            self._read_timeout.stop()  # empty lines have come before it
        return True

    def _offer(self, target: bytes, headers: RawHeaders | dict[bytes, bytes], body: bytes, *, is_last: bool) -> bool:
        """Offer the fast path a request that it may take; one that is taken is the connection's current cycle.

        Args:
            target: As it was sent.
            headers: Lower-case names and values.
            body: All of it.
            is_last: Whether nothing has come behind it.
        """
        assert self._fast_path is not None
        before, cycle = self.cycle, FastPathCycle(self)
        if self._last.is_draining and is_last:
            self._last.mark(cycle)  # before it is offered: it may be answered at once
        self.cycle = cycle  # type: ignore[assignment]  # it has what uvicorn uses of one
        if self._fast_path.offer(target, headers, body, cycle):
            return True
        self.cycle = before
        return False

    def _read(self, data: bytes) -> None:
        """Parse requests; start the read timeout when the bytes do not make a request yet, stop it when they do."""
        read_before = self._requests_read
        if not self._parse_turn(data):
            return
        state = self._state
        if state is _HELD:
            self._state = _IDLE
            self._let_go(is_whole=True)
        elif state is _HOLDING:
            self._state = _BODY
            self._let_go(is_whole=False)
        if self._last.is_draining:
            self.drain()  # another request may be the last one now
        if state is _HELD or not is_answered(self):
            # A held request was the last to come, and may be answered already: the next bytes begin a new request.
            self._read_timeout.stop()
        elif self._state is _IDLE and self._requests_read != read_before:
            self._read_timeout.stop()
            self._keep_alive.begin()  # the rest of a request that was answered early
        else:
            self._read_timeout.start()

    def _parse_turn(self, data: bytes) -> bool:
        """Parse what a turn may; return whether that was all of it, and no head too long.

        A turn ends where a request did: a long body is parsed at once.
        """
        read_before = self._requests_read
        for start in range(0, len(data), TURN_BYTES):
            piece = data if len(data) <= TURN_BYTES else data[start : start + TURN_BYTES]
            self._stagnant_bytes += len(piece)
            is_over = not parse(self, piece)
            if self._stagnant_bytes > MAX_HEAD and self._state not in (_IDLE, _HELD):
                self._refuse_head()
                return False
            if is_over or self.transport.is_closing():
                return True
            end = start + TURN_BYTES
            if self._requests_read != read_before and end < len(data):
                self._read_timeout.stop()
                self._backlog.add(memoryview(data)[end:])
                self._backlog.plan_turn(self.data_received)
                return False
        return True

    def _end_late(self) -> None:
        if self._state is _HEAD:
            self.note_invalid("head_timeout")
        self._slow_reader.close()

    def _refuse_head(self) -> None:
        self.note_invalid("head_too_long")
        self._read_timeout.stop()
        if is_free(self):  # an answer under way would be cut in two
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self.transport.write(last_text_answer(status, self.server_state.default_headers, _HEAD_TOO_LONG))
        self._slow_reader.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; behind an answer that has begun, only close the connection."""
        self.note_invalid("not_http")
        if not is_answered(self) and self.cycle.response_started:
            self._slow_reader.close()
            return
        super().send_400_response(msg)
        self._slow_reader.begin()

    def note_invalid(self, reason: str) -> None:
        """Count a request that none of the routes sees, by one of ``INVALID``; here nothing is counted."""

    # -- writing -------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Apply backpressure: the caller does not take its answers."""
        super().pause_writing()
        self._slow_reader.begin()

    def resume_writing(self) -> None:
        """Go on: the caller has taken them."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._slow_reader.stop()

    def on_response_complete(self) -> None:
        """Begin the next request, or wait for one: as uvicorn does, but without a timer for each."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            if self.transport.is_closing():
                self._slow_reader.begin()
            elif self._backlog.unparsed:
                self._backlog.plan_turn(self.data_received)
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()  # unless there is a backlog
        if self._backlog.unparsed:
            self._backlog.plan_turn(self.data_received)
        elif self._state is not _IDLE:
            self._read_timeout.start()  # the next request has begun to arrive
        elif self._keep_alive.timer is None:
            self._keep_alive.begin()
        else:
            self._keep_alive.idle_since = self.loop.time()

    def _unset_keepalive_if_required(self) -> None:
        """Do for uvicorn what it does with a timer of its own."""
        self._keep_alive.pause()

    # -- graceful shutdown ---------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Answer what was asked and what is on its way, and say with the last answer that it is the last one."""
        self._last.is_draining = True
        if self.cycle is not None and self._state is _IDLE and not self._backlog.unparsed:  # type: ignore[redundant-expr]  # none at first
            self._last.mark(self.cycle)  # all of its request has come, and nothing behind it

    def shutdown(self) -> None:
        """Close a connection that has no request; one that has, or whose bytes have come, is answered before.

        A request that its caller sends at this very moment finds the connection closed. A server can announce that in
        HTTP/1.1 only with an answer, so a caller that sent nothing while the process drained was told nothing.
        """
        self.drain()
        if not is_answered(self) or self._state is not _IDLE or self._backlog.unparsed or self.transport.is_closing():
            return
        if not has_unread_bytes(self.transport):
            self._slow_reader.close()
