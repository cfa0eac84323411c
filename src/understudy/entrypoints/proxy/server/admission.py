"""Admission of connections: counted before anything else, TLS within the read timeout, then served or refused."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from understudy.entrypoints.proxy.overload.overload import OVERLOAD, OverloadManager, counted_address
from understudy.entrypoints.proxy.overload.quota import Waiting
from understudy.entrypoints.proxy.server.backpressure import has_unread_bytes
from understudy.entrypoints.proxy.server.connection import Connection
from understudy.entrypoints.proxy.server.refusal import LINGER_SECONDS, Refusal
from understudy.entrypoints.proxy.server.request_state import State

TLS = "understudy.tls"
"""Key of the TLS context in the server's state; without one connections are plain."""
LATE_SECONDS = 1.0
"""From when on a connection may be closed for another one though its head or TLS handshake has begun, or though it had
requests. Heads take milliseconds, and callers that ask now and then keep what they have."""
_LATE, _UNUSED, _USED = range(3)


class CountedConnection(Connection):
    """A connection that says what it waits for, and when it is over.

    Args:
        on_lost: Called once, when it is over.
        overload: Counts invalid requests, if there is one.
        arguments: Of :class:`Connection`.
    """

    def __init__(self, *, on_lost: Callable[[], None], overload: OverloadManager | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._on_lost = on_lost
        self._overload = overload

    def note_invalid(self, reason: str) -> None:
        """Count it."""
        if self._overload is not None:
            self._overload.telemetry.count("http_requests_invalid_total", reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Say so."""
        super().connection_lost(exc)
        self._on_lost()

    @property
    def is_in_body(self) -> bool:
        """Whether a request's head has come, and its body not whole."""
        return self._state in (State.HOLDING, State.BODY)

    def waiting(self, now: float) -> Waiting | None:
        """Return what the connection waits for; ``None`` while it has a request, or unsent bytes of an answer."""
        if self._backlog.unparsed or self.transport.get_write_buffer_size():
            return None
        since = self._keep_alive.idle_since
        if since is not None and self._state is State.IDLE:
            is_used = self.cycle is not None
            rank = _USED if is_used else _UNUSED
        else:
            since, rank = self._read_timeout.began_at, _LATE
        if since is None or (rank != _UNUSED and now - since < LATE_SECONDS):
            return None
        return Waiting(rank, since)


class Admission(asyncio.Protocol):
    """What a new connection is until it is known whether and how it is served.

    Args:
        receive_seconds: As of :class:`Connection`; a TLS handshake's time-out, too.
        arguments: As uvicorn gives them to its own class, and further ones of :class:`Connection`.
    """

    def __init__(self, *, receive_seconds: float, **arguments: Any) -> None:
        self._receive_seconds = receive_seconds
        self._arguments = arguments
        state = arguments["app_state"]
        self._overload: OverloadManager | None = state.get(OVERLOAD)
        self._tls: ssl.SSLContext | None = state.get(TLS)
        self._loop: asyncio.AbstractEventLoop = arguments["_loop"] or asyncio.get_running_loop()
        self._since = self._loop.time()
        self._connection: CountedConnection | None = None
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one that writes
        """Serve the connection, or refuse it."""
        self._address = counted_address(transport.get_extra_info("peername"))
        reason = self._overload.admit(self, self._address) if self._overload is not None else None
        if self._tls is not None:
            self._begin_handshake(transport, self._tls, reason)
            return
        protocol = self._serve() if reason is None else self._refuse(reason)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)

    # -- while it is held ----------------------------------------------------------------------------------------------

    def waiting(self, now: float) -> Waiting | None:
        """Return what it waits for; ``None`` while it has a request."""
        if self._handshake is None:
            return self._connection.waiting(now) if self._connection is not None else None
        return Waiting(_LATE, self._since) if now - self._since >= LATE_SECONDS else None

    def evict(self) -> bool:
        """Close it, unless bytes of a request have come; return whether that was done."""
        if self._handshake is not None:
            self._handshake.cancel()
        elif self._connection is not None:
            transport = self._connection.transport
            if has_unread_bytes(transport):
                return False
            transport.abort()  # nothing is unsent; a TLS goodbye would wait for the caller's
        self._release()
        return True

    def end(self) -> None:
        """End the TLS handshake of a refused connection."""
        if self._handshake is not None:
            self._handshake.cancel()
        self._release()

    def _release(self) -> None:
        self._connection = None
        if self._overload is not None:
            self._overload.release(self, self._address)
            self._overload.lingering.discard(self)

    # -- what it becomes -----------------------------------------------------------------------------------------------

    def _serve(self) -> asyncio.Protocol:
        connection = CountedConnection(
            receive_seconds=self._receive_seconds, on_lost=self._release, overload=self._overload, **self._arguments
        )
        self._connection = connection
        return connection

    def _refuse(self, reason: str) -> asyncio.Protocol:
        assert self._overload is not None
        server = self._arguments["server_state"]
        return Refusal(reason, self._overload.lingering, self._loop, lambda: server.default_headers)

    def _begin_handshake(self, transport: asyncio.Transport, tls: ssl.SSLContext, reason: str | None) -> None:
        """Continue on a copy of the socket: the transport reads as soon as this returns, before TLS could begin."""
        try:
            copy = socket_copy(transport)
        except OSError:  # too many are open, or the caller has gone
            self._release()
            transport.abort()
            return
        transport.set_protocol(asyncio.Protocol())
        transport.abort()
        self._handshake = self._loop.create_task(self._shake_hands(copy, tls, reason))
        if reason is not None and self._overload is not None:
            self._overload.lingering.add(self)

    async def _shake_hands(self, plain: socket.socket, tls: ssl.SSLContext, reason: str | None) -> None:
        seconds = LINGER_SECONDS if reason is not None else self._receive_seconds
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._serve() if reason is None else self._refuse(reason),
                plain,
                ssl=tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except OSError as problem:
            self._release()
            if self._overload is not None:
                outcome = "timeout" if isinstance(problem, ConnectionAbortedError) else "failed"
                self._overload.telemetry.count("tls_handshake_failures_total", outcome)
        except asyncio.CancelledError:
            self._release()
            raise
        finally:
            self._handshake = None
            if reason is not None:
                self._release()  # the refusal lingers by itself now


def socket_copy(transport: asyncio.Transport) -> socket.socket:
    """Return another socket of the same connection, on which TLS can begin before anything is read.

    Raises:
        OSError: The process may open no further one, or the connection is lost.
    """
    held = transport.get_extra_info("socket")
    if held is None:
        raise ConnectionResetError
    descriptor = os.dup(held.fileno())
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
