"""Where connections of the gRPC port come in: counted, over TLS where that is so, looked after, and sent elsewhere."""

import asyncio
import random
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import structlog

from understudy.adapters.http2.frames import ErrorCode
from understudy.entrypoints.proxy.overload.quota import ConnectionQuota, Waiting
from understudy.entrypoints.proxy.rpc.http2.calls import Serving
from understudy.entrypoints.proxy.rpc.http2.connection import SILENT_SECONDS, Http2Connection
from understudy.entrypoints.proxy.server.admission import socket_copy
from understudy.entrypoints.proxy.server.backpressure import has_unread_bytes, is_any_readable

_log = structlog.get_logger(__name__)

BACKLOG = 2_048
ALPN = "h2"
SWEEP_SECONDS = 0.5
"""How often connections are looked at."""
KEEPALIVE_SECONDS = 60.0
"""Of silence, until the peer is asked for a sign of life."""
LATE_SECONDS = 1.0
"""For which a connection has been without a call, before it may be closed for another one."""
AGE_SPREAD = 0.1
"""Of a connection's age: those that were made together do not end together."""
GREETING_SECONDS = 1.0
"""At the end, for a connection that has said nothing yet."""
_MAX_ACCEPT_TURNS = 100


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Of connections."""

    connections: int
    handshake_seconds: float
    """Until a connection has said that it speaks HTTP/2, over TLS where that is so; in which a header has to come to
    its end; and in which its socket has to take something of what it asked for."""
    idle_seconds: float
    """Without a call, until a connection is ended; clients connect again by themselves with their next one."""
    age_seconds: float
    """Until its caller is told to open another one, by which it finds new processes."""
    grace_seconds: float
    """Then, until what still stands on it is broken off."""


class Listener:
    """Accepts connections, and ends them.

    Args:
        bounds: Of connections.
        serving: What connections do.
        draw: Draws from 0 to 1, for the ages of connections.
    """

    def __init__(self, bounds: ConnectionBounds, serving: Serving, draw: Callable[[], float] = random.random) -> None:
        self._bounds = bounds
        self._serving = serving
        self._draw = draw
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._quota = ConnectionQuota(bounds.connections)
        self._tls: ssl.SSLContext | None = None
        self._end_seconds: float | None = None
        """Once it leaves: how long a new connection is of use."""
        self.arrivals: dict[Arrival, None] = {}
        """Connections that are open, and those that begin."""

    async def start(self, where: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Listen on a socket that is bound."""
        if tls is not None:
            tls.set_alpn_protocols([ALPN])
        self._tls = tls
        self._server = await self._loop.create_server(lambda: Arrival(self), sock=where, backlog=BACKLOG)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def leave(self, seconds: float) -> None:
        """Have the callers of all connections go elsewhere; those of new ones after so many seconds."""
        self._end_seconds = seconds
        for arrival in tuple(self.arrivals):
            arrival.leave()

    async def stop_listening(self) -> None:
        """Accept the connections in the accept queue, which closing the socket would reset, and no further one."""
        server, self._server = self._server, None
        if server is None:
            return
        for _ in range(_MAX_ACCEPT_TURNS):
            if not is_any_readable(*(one.fileno() for one in server.sockets)):
                break
            await asyncio.sleep(0)
        server.close()
        for _ in range(2):  # what was accepted last is made in a later turn
            await asyncio.sleep(0)

    async def end(self, seconds: float) -> None:
        """Wait until the calls of all connections are answered, and end those that take longer."""
        await self.stop_listening()
        self.leave(0.0)
        began = self._loop.time()
        while self.arrivals and self._loop.time() < began + seconds:
            await asyncio.sleep(0.01)
            if self._loop.time() > began + GREETING_SECONDS:
                for arrival in [one for one in self.arrivals if not one.is_greeted]:
                    arrival.abort()
        for arrival in tuple(self.arrivals):
            arrival.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def end_messages(self) -> None:
        """Have all messages that are on their way give way at once."""
        for arrival in tuple(self.arrivals):
            arrival.end_messages()

    # -- towards connections -------------------------------------------------------------------------------------------

    def admit(self, arrival: "Arrival") -> bool:
        """Hold a new connection, in place of one that waits for its caller where there are too many."""
        if self._quota.is_full and not self._quota.close_one(self._loop.time()):
            return False
        self._quota.held[arrival] = None
        self.arrivals[arrival] = None
        return True

    def release(self, arrival: "Arrival") -> None:
        """Hold a connection no longer."""
        self._quota.held.pop(arrival, None)
        self.arrivals.pop(arrival, None)

    def make(self, arrival: "Arrival") -> Http2Connection:
        """Return what a connection speaks."""
        return Http2Connection(arrival, self._serving)

    def age(self) -> float:
        """Return how long a new connection is of use."""
        if self._end_seconds is not None:
            return self._end_seconds
        return self._bounds.age_seconds * (1 + AGE_SPREAD * (2 * self._draw() - 1))

    @property
    def tls(self) -> ssl.SSLContext | None:
        """With what TLS begins."""
        return self._tls

    @property
    def handshake_seconds(self) -> float:
        """As of the bounds."""
        return self._bounds.handshake_seconds

    def _sweep(self) -> None:
        now = self._loop.time()
        for arrival in tuple(self.arrivals):
            try:
                arrival.look(now, self._bounds)
            except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the others their bounds
                _log.exception("grpc_connection.not_looked_at")
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)


class Arrival(asyncio.Protocol):
    """A connection from its first moment: counted, then in TLS' handshake where there is one, then HTTP/2's.

    Args:
        listener: Accepted it.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._handshake: asyncio.Task[None] | None = None
        self._connection: Http2Connection | None = None
        self._age = listener.age()
        self._in_header_since: float | None = None

    @property
    def is_greeted(self) -> bool:
        """Whether its caller has said how it speaks HTTP/2."""
        return self._connection is not None and self._connection.is_greeted

    @property
    def is_over(self) -> bool:
        """Whether nothing more is read of it."""
        return self._connection is None or self._connection.is_over

    @property
    def unsent_bytes(self) -> int:
        """How many wait for its socket to take them."""
        return 0 if self._connection is None else self._connection.unsent_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        plain = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        if not self._listener.admit(self):
            plain.abort()
            return
        tls = self._listener.tls
        if tls is not None:
            self._begin_handshake(plain, tls)
            return
        connection = self._connection = self._listener.make(self)
        plain.set_protocol(connection)
        connection.connection_made(plain)
        if not self._age:
            connection.leave()

    def lost(self, connection: Http2Connection) -> None:
        """Hold it no longer."""
        del connection
        self._connection = None
        self._listener.release(self)

    def leave(self) -> None:
        """Have its caller go elsewhere, as soon as that can be said."""
        self._age = 0.0
        if self._connection is not None:
            self._connection.leave()

    def end_messages(self) -> None:
        """Have all of its messages that are on their way give way at once."""
        if self._connection is not None:
            self._connection.end_messages()

    def abort(self) -> None:
        """End it at once."""
        if self._handshake is not None:
            self._handshake.cancel()
        if self._connection is not None:
            self._connection.abort()
        self._listener.release(self)

    def look(self, now: float, bounds: ConnectionBounds) -> None:
        """Do what time asks for."""
        connection, age = self._connection, now - self._since
        if connection is None:
            return  # TLS has a time-out of its own
        in_header = (self._in_header_since or now) if connection.is_in_header else None
        self._in_header_since = in_header
        if in_header is not None and now - in_header > bounds.handshake_seconds:
            connection.end(ErrorCode.ENHANCE_YOUR_CALM, "a header did not come to its end in time")
        elif not connection.is_greeted:
            if age > bounds.handshake_seconds:
                connection.end(ErrorCode.SETTINGS_TIMEOUT, "nothing was said in time")
        elif (connection.paused_at is not None and now - connection.paused_at > bounds.handshake_seconds) or (
            connection.pinged_at is not None and now - connection.pinged_at > SILENT_SECONDS
        ):
            connection.abort()
        elif age > self._age + bounds.grace_seconds:
            connection.end(ErrorCode.NO_ERROR, "the connection is too old")
        elif age > self._age or (not connection.calls and now - connection.idle_since > bounds.idle_seconds):
            connection.leave()
        elif connection.pinged_at is None and now - connection.heard_at > KEEPALIVE_SECONDS:
            connection.ping()

    # -- while it is held ----------------------------------------------------------------------------------------------

    def waiting(self, now: float) -> Waiting | None:
        """Return since when it waits for its caller; ``None`` while it has a call."""
        connection = self._connection
        since = self._since if connection is None or not connection.is_greeted else connection.idle_since
        if (connection is not None and connection.calls) or now - since < LATE_SECONDS:
            return None
        return Waiting(1 if connection is not None and connection.is_greeted else 0, since)

    def evict(self) -> bool:
        """Close it, unless bytes of a call have come; return whether that was done."""
        if self._connection is not None and has_unread_bytes(self._connection.transport):
            return False
        if self._connection is not None:
            self._connection.end(ErrorCode.NO_ERROR, "the connection was idle, and others wait")
        else:
            self.abort()
        self._listener.release(self)
        return True

    def _begin_handshake(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Continue on a copy of the socket: the transport reads as soon as this returns, before TLS could begin."""
        try:
            copy = socket_copy(transport)
        except OSError:  # too many are open, or the caller has gone
            self._listener.release(self)
            transport.abort()
            return
        transport.set_protocol(asyncio.Protocol())
        transport.abort()
        self._handshake = self._loop.create_task(self._shake_hands(copy, tls))

    async def _shake_hands(self, plain: socket.socket, tls: ssl.SSLContext) -> None:
        seconds = self._listener.handshake_seconds
        connection = self._listener.make(self)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: connection, plain, ssl=tls, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
            )
        except OSError:
            self._listener.release(self)
            return
        except asyncio.CancelledError:
            self._listener.release(self)
            raise
        finally:
            self._handshake = None
        secured = transport.get_extra_info("ssl_object")
        if secured is None or secured.selected_alpn_protocol() != ALPN:
            connection.end(ErrorCode.HTTP_1_1_REQUIRED, "h2 was not agreed on (ALPN)")
        elif not connection.is_over:
            self._connection = connection
            if not self._age:
                connection.leave()
