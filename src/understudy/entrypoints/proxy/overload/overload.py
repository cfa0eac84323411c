"""Overload manager: what a process takes in, and what it closes, when connections, memory or time get short.

Load shedding of calls is elsewhere (``serving/upstream/load_shedding.py``): it protects model servers. This protects
the process itself, as Envoy's overload manager does, and acts on connections, so that a call pays nothing for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any, NoReturn

import structlog

from understudy.entrypoints.proxy.overload.descriptors import ConnectionLimits
from understudy.entrypoints.proxy.overload.lingering import Lingering
from understudy.entrypoints.proxy.overload.pressure import TICK_SECONDS, Pressure
from understudy.entrypoints.proxy.overload.quota import ConnectionQuota, Held
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

OVERLOAD = "understudy.overload"
"""Key of the :class:`OverloadManager` in the server's state, once the lifespan has begun."""
INVALID = ("not_http", "head_too_long", "head_timeout")
"""Why a request is refused by its connection, before any route: reasons in ``http_requests_invalid_total``."""
TRIGGERS = ("connections", "address", "memory", "lag", "bodies")
CALM_SECONDS = 10.0
"""How long a trigger must have been silent before its overload is over: an overload is one log event, not thousands."""
SHED_RATIO = 0.1
"""Share of the connections, at most, that memory pressure closes in a tick."""
_NEXT = {
    "connections": "Look who holds them (ss -tn), or raise the descriptor limit or UNDERSTUDY_MAX_CONNECTIONS.",
    "address": "Look at the caller of that address, or raise UNDERSTUDY_MAX_CONNECTIONS_PER_ADDRESS.",
    "memory": "Give the process more memory, or fewer callers; UNDERSTUDY_MAX_MEMORY_BYTES is where this begins.",
    "bodies": "Look at the caller of that address, or give the process more memory (UNDERSTUDY_MAX_MEMORY_BYTES).",
    "lag": "Add proxies or workers; UNDERSTUDY_MAX_LAG_SECONDS is where this begins.",
}


@dataclass(slots=True)
class _Overload:
    """One trigger's overload that goes on."""

    last_at: float
    refused: int = 0
    closed: int = 0


@dataclass(slots=True)
class OverloadManager:
    """Admits callers' connections, or says why not.

    A new connection at a limit takes the place of the one that has waited longest for its caller; without such a one it
    is refused. Under pressure every new one is refused, and memory pressure closes those that wait.

    Args:
        limits: Of the process and of each address.
        pressure: Watches memory and lag.
        telemetry: Counts.
        now: The event loop's clock, in seconds.
        shrink_heap: Called at each measurement that finds memory pressure.
    """

    limits: ConnectionLimits
    pressure: Pressure
    telemetry: Telemetry
    now: Callable[[], float]
    shrink_heap: Callable[[], None]
    process: ConnectionQuota = field(init=False)
    addresses: dict[str, ConnectionQuota] = field(init=False, default_factory=dict)
    lingering: Lingering = field(init=False)
    relief: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Called at each measurement that finds memory pressure: parts beside the connections that can give memory back."""
    _overloads: dict[str, _Overload] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.process = ConnectionQuota(self.limits.connections)
        self.lingering = Lingering(self.limits.refused)
        for trigger in TRIGGERS:
            # A counter that first appears with 1 has not increased, for Prometheus.
            self.telemetry.count("connections_refused_total", trigger, by=0)
            self.telemetry.count("idle_connections_closed_total", trigger, by=0)
            self.telemetry.set("overload_active", 0, trigger)
        for outcome in ("timeout", "failed"):
            self.telemetry.count("tls_handshake_failures_total", outcome, by=0)
        for reason in INVALID:
            self.telemetry.count("http_requests_invalid_total", reason, by=0)
        self.telemetry.set("connections_limit", self.limits.connections)

    def admit(self, held: Held, address: str) -> str | None:
        """Hold a new connection until it is released; return the trigger that refuses it, if one does."""
        reason = self.pressure.reason or self._make_room(address)
        if reason is not None:
            self._note(reason, address).refused += 1
            self.telemetry.count("connections_refused_total", reason)
            return reason
        quota = self.addresses.get(address)
        if quota is None:
            quota = self.addresses[address] = ConnectionQuota(self.limits.per_address)
        quota.held[held] = self.process.held[held] = None
        return None

    def release(self, held: Held, address: str) -> None:
        """Hold a connection no longer; what is not held is no error."""
        self.process.held.pop(held, None)
        quota = self.addresses.get(address)
        if quota is not None:
            quota.held.pop(held, None)
            if not quota.held:
                del self.addresses[address]

    def refuse_body(self, address: str, limit_bytes: int) -> None:
        """Note that a body was refused, and its connection with it, at a limit of the body budget."""
        self._note("bodies", address, limit_bytes).refused += 1
        self.telemetry.count("connections_refused_total", "bodies")

    async def run(self) -> NoReturn:
        """Measure and act until cancelled."""
        while True:
            due_at = self.now() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.tick(max(0.0, self.now() - due_at))

    def tick(self, lag_seconds: float) -> None:
        """Measure, close what memory pressure has closed and give memory back, and note what is over."""
        self.pressure.observe(lag_seconds)
        reason, now = self.pressure.reason, self.now()
        if reason is not None:
            self._note(reason)
        if reason == "memory":
            for give_back in self.relief:
                give_back()
            self.shrink_heap()
            for _ in range(max(1, int(SHED_RATIO * len(self.process.held)))):
                if not self._close_one(self.process, reason):
                    break
        for trigger, overload in list(self._overloads.items()):
            if now - overload.last_at > CALM_SECONDS:
                del self._overloads[trigger]
                self.telemetry.set("overload_active", 0, trigger)
                _log.info("overload.ended", trigger=trigger, refused=overload.refused, closed=overload.closed)
        self.telemetry.set("connections_open", len(self.process.held))

    def _make_room(self, address: str) -> str | None:
        """Return the limit at which there is no room for a connection of this address, nor could any be made."""
        quota = self.addresses.get(address)
        if quota is not None and quota.is_full and not self._close_one(quota, "address", address):
            return "address"
        return "connections" if self.process.is_full and not self._close_one(self.process, "connections") else None

    def _close_one(self, quota: ConnectionQuota, trigger: str, address: str | None = None) -> bool:
        if not quota.close_one(self.now()):
            return False
        self._note(trigger, address).closed += 1
        self.telemetry.count("idle_connections_closed_total", trigger)
        return True

    def _note(self, trigger: str, address: str | None = None, limit_bytes: int = 0) -> _Overload:
        overload = self._overloads.get(trigger)
        if overload is None:
            overload = self._overloads[trigger] = _Overload(self.now())
            self.telemetry.set("overload_active", 1, trigger)
            _log.warning(
                "overload.began", trigger=trigger, next=_NEXT[trigger], **self._figures(trigger, address, limit_bytes)
            )
        overload.last_at = self.now()
        return overload

    def _figures(self, trigger: str, address: str | None, limit_bytes: int) -> dict[str, Any]:
        if trigger == "bodies":
            return {"address": address, "limit": limit_bytes}
        if trigger == "address":
            return {"address": address, "limit": self.limits.per_address}
        if trigger == "memory":
            return {"memory_bytes": self.pressure.memory_bytes, "limit": self.pressure.max_memory_bytes}
        if trigger == "lag":
            return {"lag_seconds": round(self.pressure.lag_seconds, 3), "limit": self.pressure.max_lag_seconds}
        return {"limit": self.limits.connections}


def counted_address(peer: Any) -> str:
    """Return the address by which the overload manager counts a caller's connections.

    IPv4 as it is, of IPv6 the network of 64 bits: a caller usually has a whole such network, so it counts as one.
    """
    host = str(peer[0]) if peer else ""
    if ":" not in host:
        return host
    address = IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64)) + "/64"
