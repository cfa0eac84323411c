"""gRPC's health checks (``grpc.health.v1``), by which probes and load balancers ask."""

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from understudy.adapters._proto import understudy_health_pb2 as pb
from understudy.entrypoints.proxy.dialects.dialect import Outcome
from understudy.entrypoints.proxy.rpc.incoming import Context, message_of
from understudy.entrypoints.proxy.rpc.message_places import MessagePlaces
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Incoming, Method, message
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, handling
from understudy.errors import UnderstudyError, UnknownRoute

WATCH_SECONDS = 1.0
"""How often a watched service is looked at."""
MAX_WATCHES = 64
"""Streams at a time: each lasts as long as its caller likes."""
MAX_ASKING = 256
"""Streams at a time that have not said yet what they watch."""
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
        unread: Holds watches of which gRPC sends what they were told.
    """

    def __init__(
        self, standing: Standing, services: frozenset[str], places: MessagePlaces, unread: UnreadAnswers
    ) -> None:
        self._standing = standing
        self._unread = unread
        self._services = services | {""}
        self._places = places
        self._asking = self._watches = 0

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
        if self._asking >= MAX_ASKING:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_ASKING} ask already")
        self._asking += 1
        try:
            request = message_of(await self._places.read(context, MESSAGE_SECONDS), MAX_BYTES)
            service = pb.HealthCheckRequest.FromString(request).service
        except (UnderstudyError, DecodeError):
            await self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "expected a HealthCheckRequest")
        finally:
            self._asking -= 1
        if self._watches >= MAX_WATCHES:
            what = f"{MAX_WATCHES} watch already: ask by Check"
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, what)
        self._watches += 1
        try:
            async for found in self._found(service):
                answer = pb.HealthCheckResponse(status=found).SerializeToString()
                self._unread.hold(handling(), context.peer(), len(answer))
                yield answer
                self._unread.release(handling())
        finally:
            self._watches -= 1

    async def _refuse(self, context: Context, code: grpc.StatusCode, what: str) -> NoReturn:
        self._unread.hold(handling(), context.peer(), 0)
        await context.abort(code, what)
        raise AssertionError  # an abort raises

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
