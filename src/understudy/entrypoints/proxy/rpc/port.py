"""The port itself: a gRPC server in the process's own event loop, its bounds, and its end without a lost call."""

import asyncio
import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import grpc

from understudy.adapters._proto.methods import (
    HEALTH_SERVICE,
    OIP_SERVICE,
    TFSERVING_MODEL_SERVICE,
    TFSERVING_PREDICTION_SERVICE,
)
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.rpc.health import HealthService
from understudy.entrypoints.proxy.rpc.inference import InferenceService
from understudy.entrypoints.proxy.rpc.prediction import PredictionServices
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Method, UnaryCalls, not_offered
from understudy.entrypoints.proxy.rpc.unread_answers import log_no_callers_that_left

MAX_CONNECTIONS = 1_024
MAX_CALLS = 1_024
"""At a time, of one connection and of all, until gRPC has their answers."""
MAX_UNREAD = 2 * MAX_CALLS
"""Answers that gRPC has and their callers have not: all calls at a time may be answered in one turn."""
ENVELOPE_BYTES = 65_536
"""Of a message, beyond what a body may have: so that a body that is too long is refused in our words."""
UNCOMPRESSED = 1
"""The set of codings whose first one, none, is the only member. gRPC inflates a message before it looks at its bound:
half a mebibyte of gzip took the process a gibibyte (measured)."""
FIXED_WINDOWS = 0
"""Whether gRPC measures what a connection carries. By that it let each stream send mebibytes before its message is read
(measured); else they send 64 KiB."""
MAX_METADATA_BYTES = 16_384
KEEPALIVE_MS, MIN_PING_MS = 60_000, 10_000
IDLE_MS = 300_000
"""Without a call, until a connection is closed; clients connect again by themselves with their next one."""
AGE_SECONDS, AGE_GRACE_SECONDS = 1_800.0, 120.0
"""Of a connection, until its caller is told to open another one, by which it finds new processes; and then until what
still stands on it is broken off. A call takes a minute and :attr:`Bounds.handshake_seconds` at most."""
QUIET_SECONDS = 0.5
"""How long no call may have come before a port that listens alone is closed."""


class Place(NamedTuple):
    """Where the port is, and who shares it."""

    host: str
    port: int
    is_shared: bool
    """Whether other processes, workers of the same proxy, listen there as well."""


class Certificate(NamedTuple):
    """Files of a TLS server."""

    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of what callers send at a time."""

    connections: int
    message_bytes: int
    handshake_seconds: float
    """Until a connection has said that it speaks HTTP/2, over TLS where that is so."""
    age_seconds: float = AGE_SECONDS

    def options(self, *, is_shared: bool) -> list[tuple[str, Any]]:
        """Return gRPC's own names of them."""
        return [
            ("grpc.max_receive_message_length", self.message_bytes + ENVELOPE_BYTES),
            ("grpc.compression_enabled_algorithms_bitset", UNCOMPRESSED),
            ("grpc.http2.bdp_probe", FIXED_WINDOWS),
            ("grpc.max_concurrent_streams", MAX_CALLS),
            ("grpc.max_allowed_incoming_connections", self.connections),
            ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.server_handshake_timeout_ms", max(1, round(self.handshake_seconds * 1e3))),
            ("grpc.max_connection_idle_ms", IDLE_MS),
            ("grpc.max_connection_age_ms", round(self.age_seconds * 1e3)),
            ("grpc.max_connection_age_grace_ms", round(AGE_GRACE_SECONDS * 1e3)),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_MS),
            ("grpc.so_reuseport", int(is_shared)),
        ]


class GrpcPort:
    """A gRPC server.

    Args:
        place: Where it listens.
        certificate: With one it speaks TLS, and nothing else.
        bounds: Of what callers send.
        calls: Answers unary calls.
        offered: The open proxy.
    """

    def __init__(
        self, place: Place, certificate: Certificate | None, bounds: Bounds, calls: UnaryCalls, offered: Offered
    ) -> None:
        self._place = place
        self._certificate = certificate
        self._calls = calls
        self._standing = Standing(offered)
        self._end: asyncio.Task[None] | None = None
        # gRPC's own bound on calls counts those whose answers wait for their callers, and miscounts those it refuses.
        self._server = grpc.aio.server(options=bounds.options(is_shared=place.is_shared))
        inference = InferenceService(offered, self._standing).methods
        tensorflow = PredictionServices(offered)
        services = {
            OIP_SERVICE: inference,
            TFSERVING_PREDICTION_SERVICE: tensorflow.prediction,
            TFSERVING_MODEL_SERVICE: tensorflow.model,
        }
        health = HealthService(self._standing, frozenset(services), calls.keyless, calls.unread)
        handlers = [_Service(name, methods, calls) for name, methods in services.items()]
        handlers.append(_Service(HEALTH_SERVICE, health.methods, calls, {"Watch": health.watch}))
        self._server.add_generic_rpc_handlers((*handlers, _NoService(calls)))

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The place is taken, or not this process's to have.
        """
        log_no_callers_that_left()
        host, port, _ = self._place
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._certificate is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, _credentials(self._certificate))
        except RuntimeError:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: set UNDERSTUDY_GRPC_PORT") from None
        await self._server.start()

    async def drain(self, seconds: float, *, is_alone: bool) -> None:
        """Be ready no longer, and take calls until none comes; then take no more, and let those under way go on.

        Args:
            seconds: Longest time, and of the calls under way again.
            is_alone: Whether no other process listens there; else the port is left to them at once.
        """
        self._standing.leave()
        clock = asyncio.get_running_loop().time
        began = clock()
        while is_alone and clock() < began + seconds:
            quiet = clock() - max(began, self._calls.busy_at)
            if quiet >= QUIET_SECONDS:
                break
            await asyncio.sleep(min(QUIET_SECONDS - quiet, seconds))
        self._begin_end(seconds)

    async def stop(self, seconds: float) -> None:
        """Take no further call, and wait for those under way; those that take longer are ended."""
        await self._begin_end(seconds)
        self._calls.unread.close()

    def _begin_end(self, seconds: float) -> "asyncio.Task[None]":
        if self._end is None:
            self._standing.stop()
            self._end = asyncio.create_task(self._server.stop(seconds))
        return self._end


class _Service(grpc.GenericRpcHandler):
    """The methods of one service; one that it has not is refused in our words."""

    def __init__(
        self,
        name: str,
        methods: tuple[Method, ...],
        calls: UnaryCalls,
        others: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]" = MappingProxyType({}),
    ) -> None:
        self._prefix = f"/{name}/"
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            self._prefix + one.name: calls.handler_of(name, one) for one in methods
        }
        self._handlers |= {self._prefix + one: handler for one, handler in others.items()}
        self._unknown = calls.handler_of(name, not_offered("*", f"{name} has no such method here"))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return what handles a method; nothing if it is another service's."""
        path = str(handler_call_details.method)
        if not path.startswith(self._prefix):
            return None
        found: grpc.RpcMethodHandler[Any, Any] = self._handlers.get(path, self._unknown)
        return found


class _NoService(grpc.GenericRpcHandler):
    """Refuses the calls of all other services in our words."""

    def __init__(self, calls: UnaryCalls) -> None:
        self._refused = calls.handler_of("*", not_offered("*", "there is no such service here"))

    def service(self, _handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return what refuses a call."""
        return self._refused


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(certificate.key.read_bytes(), certificate.chain.read_bytes())])
