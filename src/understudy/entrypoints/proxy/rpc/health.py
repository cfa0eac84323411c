"""gRPC's health checks (``grpc.health.v1``), by which probes and load balancers ask."""

from collections.abc import AsyncIterator

import grpc
from google.protobuf.message import DecodeError

from understudy.adapters._proto import understudy_health_pb2 as pb
from understudy.entrypoints.proxy.dialects.dialect import Outcome
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.standing import Standing
from understudy.entrypoints.proxy.rpc.unary import Incoming, Method, message
from understudy.entrypoints.proxy.rpc.waiting_calls import WaitingCalls
from understudy.errors import MalformedBody, Overloaded, UnderstudyError, UnknownRoute

WATCH_SECONDS = 1.0
"""How often a watched service is looked at."""
MAX_WATCHES = 64
"""Streams at a time: each lasts as long as its caller likes."""
MAX_BYTES, MESSAGE_SECONDS = 4_096, 1.0
"""Of the message that names a service: callers need no key to send it."""
_Status = pb.HealthCheckResponse.ServingStatus


class HealthService:
    """``grpc.health.v1.Health``: all services are as ready as the proxy is.

    Args:
        standing: Knows whether that is so.
        services: Names that callers may ask for, beside the empty one.
        waiting: Reads what streams watch.
    """

    def __init__(self, standing: Standing, services: frozenset[str], waiting: WaitingCalls) -> None:
        self._standing = standing
        self._services = services | {""}
        self._waiting = waiting
        self._watches = 0

    @property
    def methods(self) -> tuple[Method, ...]:
        """Its unary methods."""
        return (Method("Check", self._check, needs_key=False, seconds=MESSAGE_SECONDS, max_bytes=MAX_BYTES),)

    async def _check(self, call: Incoming) -> Outcome:
        service = call.parsed(pb.HealthCheckRequest).service
        if service not in self._services:
            raise UnknownRoute(f"there is no service {service[:64]!r}")
        return message(pb.HealthCheckResponse(status=await self._status()))

    async def _status(self) -> "_Status":
        return pb.HealthCheckResponse.SERVING if await self._standing.is_ready() else pb.HealthCheckResponse.NOT_SERVING

    async def watch(self, stream: CallStream) -> None:
        """Answer its method that goes on: tell what a service is, and what it becomes."""
        if stream.head.is_too_long:
            _refuse(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, "the call's metadata is too long")
            return
        try:
            service = await self._service_of(stream)
        except Overloaded:
            _refuse(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls wait for their messages")
            return
        except (UnderstudyError, DecodeError):
            _refuse(stream, grpc.StatusCode.INVALID_ARGUMENT, "expected a HealthCheckRequest")
            return
        if self._watches >= MAX_WATCHES:
            _refuse(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} watch already: ask by Check")
            return
        self._watches += 1
        try:
            async for found in self._found(service):
                await stream.send(pb.HealthCheckResponse(status=found).SerializeToString())
            stream.fail(0, "", ())
        finally:
            self._watches -= 1

    async def _service_of(self, stream: CallStream) -> str:
        found = await self._waiting.read(stream, MESSAGE_SECONDS, MAX_BYTES)
        if found.is_compressed:
            raise MalformedBody("the message is compressed")
        return pb.HealthCheckRequest.FromString(found.body).service

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


def _refuse(stream: CallStream, code: grpc.StatusCode, what: str) -> None:
    stream.fail(int(code.value[0]), what, ())
