"""The gRPC port of a process, from its settings."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from understudy.bootstrap.proxy import Parts
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.rpc.health import MAX_MESSAGES
from understudy.entrypoints.proxy.rpc.message_places import MessagePlaces
from understudy.entrypoints.proxy.rpc.port import (
    ENVELOPE_BYTES,
    MAX_CALLS,
    MAX_CONNECTIONS,
    MAX_UNREAD,
    Bounds,
    Certificate,
    GrpcPort,
    Place,
)
from understudy.entrypoints.proxy.rpc.unary import Limits, UnaryCalls
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, UnreadLimits, end_calls
from understudy.entrypoints.proxy.server.body_budget import BodyBudget
from understudy.entrypoints.proxy.server.overload import OverloadManager
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


def grpc_port(settings: Settings, proxy: OpenProxy, overload: OverloadManager, budget: BodyBudget) -> GrpcPort:
    """Return the port, which does not listen yet.

    Args:
        settings: Say where, and set the bounds.
        proxy: The open one.
        overload: Knows when the process is short of memory or time.
        budget: Counts the bytes of long messages, with those of HTTP.
    """
    now = asyncio.get_running_loop().time
    places = MessagePlaces(max(1, budget.limit_bytes // (settings.body_limit_bytes + ENVELOPE_BYTES)), now)
    keyless = MessagePlaces(MAX_MESSAGES, now)
    telemetry = proxy.parts.telemetry
    for why in ("late", "many", "memory"):  # a counter that first appears with 1 has not increased, for Prometheus
        telemetry.count("grpc_answers_unread_total", why, by=0)
    unread = UnreadAnswers(
        UnreadLimits(MAX_UNREAD, budget.limit_bytes, settings.receive_seconds),
        now,
        end_calls,
        lambda why, calls: telemetry.count("grpc_answers_unread_total", why, by=calls),
    )
    overload.relief += [places.end_all, keyless.end_all, unread.end_all]
    calls = UnaryCalls(
        proxy.handler,
        telemetry,
        Limits(settings.body_limit_bytes, settings.receive_seconds, MAX_CALLS),
        places,
        keyless,
        unread=unread,
        budget=budget,
        overload=overload,
        new_id=proxy.new_id,
        tracer=proxy.parts.tracer,
        now=now,
    )
    certificate = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        certificate = Certificate(settings.tls_cert, settings.tls_key)
    bounds = Bounds(
        min(MAX_CONNECTIONS, overload.limits.connections),
        settings.body_limit_bytes,
        settings.receive_seconds,
    )
    place = Place(settings.host, settings.grpc_port, is_shared=settings.workers > 1)
    return GrpcPort(place, certificate, bounds, calls, proxy)
