"""The connection to one replica, made when a call needs it, and made again when it was lost."""

import asyncio
import random
from collections.abc import Callable, Sequence

import structlog

from understudy.adapters.model_servers.addresses import Metadata, Wire
from understudy.adapters.model_servers.http2 import failures
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.connection import Http2Connection
from understudy.adapters.model_servers.http2.dialling import Dialler, why_not_connected
from understudy.adapters.model_servers.http2.keepalive import Keepalive
from understudy.adapters.model_servers.http2.request_head import metadata_block, request_prefix
from understudy.adapters.model_servers.status import closed
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.errors import BackendUnavailable

_log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 0.8
PAUSE_GROWTH = 1.6
JITTER = 0.2
"""The same pauses as gRPC's library is told: the longest is below a second."""


def open_http2(endpoint: str, target: Target, addresses: Sequence[Address], wire: Wire) -> "Http2Channel":
    """Return a channel to an endpoint that speaks gRPC; its connection opens as a call needs it.

    Raises:
        BackendUnavailable: Its name cannot be a header, or the authorities of its TLS cannot be read.
    """
    if not endpoint.isascii() or not endpoint.isprintable():
        raise BackendUnavailable("an endpoint has a name in ASCII (IDNA)")
    return Http2Channel(endpoint, Dialler(target, addresses, wire.tls))


class Http2Channel:
    """The calls to one replica, on one connection at a time.

    While there is none, calls wait for the first attempt to make one. Once that has failed they fail at once, as with
    gRPC's library, and it is attempted again after pauses, until one is there; those that wait for ready go on waiting.
    """

    def __init__(self, endpoint: str, dialler: Dialler, draw: Callable[[], float] = random.random) -> None:
        self._endpoint = endpoint
        self._dialler = dialler
        self._draw = draw
        self._loop = asyncio.get_running_loop()
        self._connection: Http2Connection | None = None
        self._leaving: set[Http2Connection] = set()
        """Connections that get no further calls, and have calls in hand."""
        self._waiting: dict[UnaryCall, None] = {}
        self._dialling: asyncio.Task[None] | None = None
        self._failure: str | None = None
        """Why the last attempt failed; ``None``: it did not."""
        self._is_closed = False
        self._is_draining = False
        """Closed with a grace."""
        self.keepalive = Keepalive(self._loop)

    @property
    def is_connected(self) -> bool:
        """Whether a call would leave at once."""
        return self._connection is not None

    def method(self, name: str) -> "Http2Method":
        """Return what sends calls of a method."""
        return Http2Method(self, request_prefix(name, self._endpoint, is_secure=self._dialler.is_secure))

    async def close(self, grace_seconds: float | None = None) -> None:
        """Take no more calls, and end those in flight, if need be after a grace.

        Calls that have no connection get none: with a grace they fail as those of a lost connection, to be retried.
        """
        self._is_closed = True
        self._is_draining = bool(grace_seconds)
        if self._dialling is not None:
            self._dialling.cancel()
        for call in tuple(self._waiting):
            call.settle(self._refusal())
        self._waiting.clear()
        connections = self._connections()
        try:
            if grace_seconds and connections:
                for connection in connections:
                    connection.leave()
                await asyncio.wait([connection.ended for connection in connections], timeout=grace_seconds)
        finally:  # of the grace, too, which the end of the version may cut short
            self._is_draining = False
            for connection in connections:
                connection.end("the channel is closed", closed)

    def place(self, call: UnaryCall) -> None:
        """Send a call on the connection, or have it wait for one."""
        if call.is_settled:
            return
        if self._is_closed:
            call.settle(self._refusal())
        elif self._connection is not None:
            self._connection.start(call)
        elif self._failure is not None and not call.waits:
            call.settle(failures.lost(self._failure))
        else:
            call.holder = self
            self._waiting[call] = None
            self._connect()

    def drop(self, call: UnaryCall) -> None:
        """Forget a call that waits for a connection."""
        self._waiting.pop(call, None)

    def retired(self, connection: Http2Connection) -> None:
        """Send no further calls on a connection."""
        if connection is self._connection:
            self._connection = None
            self.keepalive.stop()
            if connection.has_pinged_too_often:
                self.keepalive.relax()
        if connection.is_over:
            self._leaving.discard(connection)
        elif connection.in_flight:
            self._leaving.add(connection)

    def _refusal(self) -> Exception:
        return failures.lost("the endpoint has moved") if self._is_draining else closed()

    def _connect(self) -> None:
        if self._dialling is None:
            self._dialling = asyncio.create_task(self._dial())

    async def _dial(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._is_closed:
            try:
                connection = await self._dialler.dial(self)
            except OSError as error:
                self._fail(why_not_connected(error))
            except Exception:  # noqa: BLE001 - or else calls would wait for an attempt that is not made any more
                _log.exception("model_server.not_dialled", endpoint=self._endpoint)
                self._fail("the connection cannot be made: see the proxy's log")
            else:
                self._dialling = None  # from here on, a call that finds no connection has another one made
                self._use(connection)
                return
            await asyncio.sleep(pause * (1 + JITTER * (2 * self._draw() - 1)))
            pause = min(pause * PAUSE_GROWTH, MAX_PAUSE_SECONDS)

    def _fail(self, why: str) -> None:
        self._failure = why
        for call in [call for call in self._waiting if not call.waits]:
            del self._waiting[call]
            call.settle(failures.lost(why))

    def _use(self, connection: Http2Connection) -> None:
        self._failure = None
        self._connection = connection
        self.keepalive.start(connection)
        waiting, self._waiting = tuple(self._waiting), {}
        for call in waiting:
            self.place(call)

    def _connections(self) -> tuple[Http2Connection, ...]:
        return (*self._leaving, *(() if self._connection is None else (self._connection,)))


class Http2Method:
    """Sends calls of one method: the fields that are the same for all are made once."""

    def __init__(self, channel: Http2Channel, prefix: bytes) -> None:
        self._channel = channel
        self._prefix = prefix
        self._metadata: Metadata = ()
        self._metadata_block = b""

    def __call__(
        self, request: bytes, *, timeout: float, metadata: Metadata, wait_for_ready: bool = False
    ) -> UnaryCall:
        """Send a call and return it."""
        if metadata is not self._metadata:
            self._metadata, self._metadata_block = metadata, metadata_block(metadata)
        call = UnaryCall(self._prefix, self._metadata_block, request, timeout, waits=wait_for_ready)
        self._channel.place(call)
        return call
