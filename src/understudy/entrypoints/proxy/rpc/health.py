"""gRPC's health checks (``grpc.health.v1``), by which probes and load balancers ask."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from understudy.adapters._proto import understudy_health_pb2 as pb
from understudy.entrypoints.proxy.dialects.dialect import Outcome
from understudy.entrypoints.proxy.rpc.incoming import Context, message_of
from understudy.entrypoints.proxy.rpc.message_places import MessagePlaces
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Incoming, Method, message
from understudy.errors import UnderstudyError, UnknownRoute

WATCH_SECONDS = 1.0
"""How often a watched service is looked at."""
MAX_WATCHES = 64
"""Streams at a time: each takes a call's place as long as its caller likes."""
MAX_MESSAGES = 64
"""On their way at a time."""
MAX_BYTES, MESSAGE_SECONDS = 4_096, 1.0
"""Of the message that names a service: callers need no key to send it."""
_Status = pb.HealthCheckResponse.ServingStatus


class HealthService:
    """``grpc.health.v1.Health``: all services are as ready as the proxy is.

    Args:
        standing: Knows whether that is so.
        services: Names that callers may ask for, beside the empty one.
        places: Reads messages.
    """

    def __init__(self, standing: Standing, services: frozenset[str], places: MessagePlaces) -> None:
        self._standing = standing
        self._services = services | {""}
        self._places = places
        self._watches = 0

    @property
    def methods(self) -> tuple[Method, ...]:
        """Its unary methods."""
        return (Method("Check", self._check, needs_key=False, seconds=MESSAGE_SECONDS),)

    @property
    def watch(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """GRPC's own handler of its method that goes on."""
        return grpc.stream_stream_rpc_method_handler(self._watch)

    async def _check(self, call: Incoming) -> Outcome:
        service = call.parsed(pb.HealthCheckRequest).service
        if service not in self._services:
            raise UnknownRoute(f"there is no service {service[:64]!r}")
        return message(pb.HealthCheckResponse(status=await self._status()))

    async def _status(self) -> "_Status":
        return pb.HealthCheckResponse.SERVING if await self._standing.is_ready() else pb.HealthCheckResponse.NOT_SERVING

    async def _watch(self, _messages: object, context: Context) -> AsyncIterator[bytes]:
        try:
            request = message_of(await self._places.read(context, MESSAGE_SECONDS), MAX_BYTES)
            service = pb.HealthCheckRequest.FromString(request).service
        except (UnderstudyError, DecodeError):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected a HealthCheckRequest")
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} watch already: ask by Check")
        self._watches += 1
        try:
            async for found in self._found(service):
                yield pb.HealthCheckResponse(status=found).SerializeToString()
        finally:
            self._watches -= 1

    async def _found(self, service: str) -> AsyncIterator["_Status"]:
        """Yield what a service is, and what it becomes, until the port takes no further call."""
        last = None
        while True:
            found = await self._status() if service in self._services else pb.HealthCheckResponse.SERVICE_UNKNOWN
            if found != last:
                last = found
                yield found
            if self._standing.is_stopping:
                return
            await self._standing.wait(WATCH_SECONDS)
