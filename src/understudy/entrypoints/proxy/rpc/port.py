"""The port itself: an HTTP/2 server in the process's own event loop, its bounds, and its end without a lost call."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from understudy.adapters._proto.methods import (
    HEALTH_SERVICE,
    OIP_SERVICE,
    TFSERVING_MODEL_SERVICE,
    TFSERVING_PREDICTION_SERVICE,
)
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.overload.body_budget import BodyBudget
from understudy.entrypoints.proxy.rpc.health import HealthService
from understudy.entrypoints.proxy.rpc.http2.calls import Serving
from understudy.entrypoints.proxy.rpc.http2.listener import ConnectionBounds, Listener
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.inference import InferenceService
from understudy.entrypoints.proxy.rpc.listening_socket import bound_socket
from understudy.entrypoints.proxy.rpc.prediction import PredictionServices
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Handle, UnaryCalls, not_offered
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers

MAX_CONNECTIONS = 1_024
MAX_CALLS = 1_024
"""At a time, until they have their answers."""
MAX_UNREAD = 2 * MAX_CALLS
"""Answers that their callers have not taken: all calls at a time may be answered in one turn."""
IDLE_SECONDS = 300.0
AGE_SECONDS, AGE_GRACE_SECONDS = 1_800.0, 120.0
"""Of a connection. A call takes a minute and :attr:`Bounds.handshake_seconds` at most."""
QUIET_SECONDS = 0.5
"""How long no call may have come before a port that listens alone is closed, and how long connections that are made
meanwhile are of use."""


class Place(NamedTuple):
    """Where the port is."""

    host: str
    port: int
    shared: socket.socket | None = None
    """A socket on which other processes, workers of the same proxy, listen as well."""


class Certificate(NamedTuple):
    """Files of a TLS server."""

    chain: Path
    key: Path


class Bounds(NamedTuple):
    """Of what callers send at a time."""

    connections: int
    message_bytes: int
    handshake_seconds: float
    """As of :class:`.ConnectionBounds`."""
    age_seconds: float = AGE_SECONDS


class GrpcPort:
    """A gRPC server.

    Args:
        place: Where it listens.
        certificate: With one it speaks TLS, and nothing else.
        bounds: Of what callers send.
        calls: Answers unary calls.
        offered: The open proxy.
        unread: Holds answers that are not taken.
        budget: Counts pieces of messages.
    """

    def __init__(
        self,
        place: Place,
        certificate: Certificate | None,
        bounds: Bounds,
        calls: UnaryCalls,
        offered: Offered,
        *,
        unread: UnreadAnswers,
        budget: BodyBudget | None,
    ) -> None:
        self._place = place
        self._certificate = certificate
        self._calls = calls
        self._unread = unread
        self._standing = Standing(offered)
        self._end: asyncio.Task[None] | None = None
        self._services, self._methods = self._routes(offered)
        self._no_service = calls.handler_of("*", not_offered("*", "there is no such service here"))
        self._listener = Listener(
            ConnectionBounds(
                bounds.connections, bounds.handshake_seconds, IDLE_SECONDS, bounds.age_seconds, AGE_GRACE_SECONDS
            ),
            Serving(self._handle, bounds.message_bytes, unread, budget),
        )

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The place is taken, or not this process's to have.
        """
        where = self._place.shared or bound_socket(self._place.host, self._place.port)
        await self._listener.start(where, None if self._certificate is None else _tls(self._certificate))

    def end_messages(self) -> None:
        """Have all messages that are on their way give way at once: the process is short of memory."""
        self._listener.end_messages()

    async def drain(self, seconds: float, *, is_alone: bool) -> None:
        """Be ready no longer, send callers elsewhere, and take calls until none comes; then take no more.

        Args:
            seconds: Longest time, and of the calls under way again.
            is_alone: Whether no other process listens there; else new connections are left to them at once.
        """
        self._standing.leave()
        clock = asyncio.get_running_loop().time
        began = clock()
        if is_alone:
            self._listener.leave(QUIET_SECONDS)
        while is_alone and clock() < began + seconds:
            quiet = clock() - max(began, self._calls.busy_at)
            if quiet >= QUIET_SECONDS:
                break
            await asyncio.sleep(min(QUIET_SECONDS - quiet, seconds))
        self._begin_end(seconds)

    async def stop(self, seconds: float) -> None:
        """Take no further call, and wait for those under way; those that take longer are ended."""
        await self._begin_end(seconds)
        self._unread.close()

    def _begin_end(self, seconds: float) -> "asyncio.Task[None]":
        if self._end is None:
            self._standing.stop()
            self._end = asyncio.create_task(self._listener.end(seconds))
        return self._end

    def _routes(self, offered: Offered) -> tuple[dict[str, Handle], dict[str, Handle]]:
        """Return what answers the calls of each service's unknown methods, and of each method."""
        tensorflow = PredictionServices(offered)
        services = {
            OIP_SERVICE: InferenceService(offered, self._standing).methods,
            TFSERVING_PREDICTION_SERVICE: tensorflow.prediction,
            TFSERVING_MODEL_SERVICE: tensorflow.model,
        }
        health = HealthService(self._standing, frozenset(services), self._calls.waiting)
        services[HEALTH_SERVICE] = health.methods
        handler_of = self._calls.handler_of
        unknown = {name: handler_of(name, not_offered("*", f"{name} has no such method here")) for name in services}
        methods = {
            f"/{name}/{one.name}": handler_of(name, one) for name, methods in services.items() for one in methods
        }
        return unknown, {**methods, f"/{HEALTH_SERVICE}/Watch": health.watch}

    async def _handle(self, stream: CallStream) -> None:
        """Answer a call."""
        head = stream.head
        if head.http_status is not None:
            stream.refuse(head.http_status)
            return
        handle = self._methods.get(head.path)
        if handle is None:
            handle = self._services.get(head.path[1:].partition("/")[0], self._no_service)
        await handle(stream)


def _tls(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    return context
