"""The gRPC port of a process, from its settings."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from understudy.bootstrap.proxy import Parts
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.overload.body_budget import BodyBudget
from understudy.entrypoints.proxy.overload.overload import OverloadManager
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.rpc.port import (
    MAX_CALLS,
    MAX_CONNECTIONS,
    MAX_UNREAD,
    Bounds,
    Certificate,
    GrpcPort,
    Place,
)
from understudy.entrypoints.proxy.rpc.unary import Limits, UnaryCalls
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, UnreadLimits
from understudy.settings import Settings


class OpenProxy(Offered, Protocol):
    """What the port needs of the open proxy."""

    @property
    def handler(self) -> PredictHandler:
        """Admits callers."""

    @property
    def parts(self) -> Parts:
        """What is open."""

    @property
    def new_id(self) -> Callable[[], str]:
        """Makes an id of 32 hex digits."""


def grpc_port(
    settings: Settings,
    proxy: OpenProxy,
    overload: OverloadManager,
    budget: BodyBudget,
    shared: socket.socket | None = None,
) -> GrpcPort:
    """Return the port, which does not listen yet.

    Args:
        settings: Say where, and set the bounds.
        proxy: The open one.
        overload: Knows when the process is short of memory or time.
        budget: Counts the pieces of messages, with those of HTTP's bodies.
        shared: A socket on which other workers listen as well, in place of one of its own.
    """
    now = asyncio.get_running_loop().time
    telemetry = proxy.parts.telemetry
    for why in ("late", "many", "memory"):  # a counter that first appears with 1 has not increased, for Prometheus
        telemetry.count("grpc_answers_unread_total", why, by=0)
    unread = UnreadAnswers(
        UnreadLimits(MAX_UNREAD, budget.limit_bytes, settings.receive_seconds),
        now,
        lambda why, calls: telemetry.count("grpc_answers_unread_total", why, by=calls),
    )
    calls = UnaryCalls(
        proxy.handler,
        telemetry,
        Limits(settings.body_limit_bytes, settings.receive_seconds, MAX_CALLS),
        overload=overload,
        new_id=proxy.new_id,
        tracer=proxy.parts.tracer,
        now=now,
    )
    certificate = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        certificate = Certificate(settings.tls_cert, settings.tls_key)
    bounds = Bounds(
        min(MAX_CONNECTIONS, overload.limits.connections), settings.body_limit_bytes, settings.receive_seconds
    )
    place = Place(settings.host, settings.grpc_port, shared)
    port = GrpcPort(place, certificate, bounds, calls, proxy, unread=unread, budget=budget)
    overload.relief += [port.end_messages, unread.end_all]
    return port
