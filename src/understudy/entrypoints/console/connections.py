"""Connections of browsers: how many there are at a time, and which of them gives way to a new one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.proxy.overload.descriptors import ConnectionLimits
from understudy.entrypoints.proxy.overload.overload import OverloadManager
from understudy.entrypoints.proxy.overload.pressure import Pressure
from understudy.entrypoints.proxy.overload.quota import Waiting
from understudy.entrypoints.proxy.server.admission import LATE_SECONDS, Admission
from understudy.settings import Settings

MAX_CONNECTIONS = 400
"""Of browsers at a time, unless the settings say another number. Half may be streams, which give way to none."""
MAX_REFUSED = 32
HEAD_SECONDS = 2.0
"""Longest time of a request's head: browsers send it in one piece. The settings may say less."""
FORM_SECONDS = 4.0
"""Longest time from a head to the end of its form, which follows at once: time to send a lost packet again."""
_LATE_RANK = 0
"""Gives way first, as a head does that is late."""


def max_connections(settings: Settings) -> int:
    """Return how many browsers' connections there may be."""
    return settings.max_connections or MAX_CONNECTIONS


def max_streams(settings: Settings) -> int:
    """Return how many of them may be streams: the others are for pages and acts."""
    return max_connections(settings) // 2


class Uncounted:
    """Telemetry of a process without metrics: nothing is counted."""

    def predicted(
        self, version: ModelVersion, role: str, outcome: str, seconds: Sequence[float], scores: Sequence[float]
    ) -> None:
        """Count no call."""

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Count nothing."""

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add nothing."""

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set nothing."""

    def forget(self, name: str, *labels: str) -> None:
        """Drop nothing."""


def overload_manager(settings: Settings) -> OverloadManager:
    """Return what admits connections: at its limit one that waits for its browser gives way to a new one.

    One address may have all of them: behind an ingress all browsers have its own.
    """
    most = max_connections(settings)
    limits = ConnectionLimits(most, min(most, settings.max_connections_per_address or most), MAX_REFUSED)
    pressure = Pressure(max_lag_seconds=0.0, max_memory_bytes=0, resident_bytes=lambda: 0)
    return OverloadManager(limits, pressure, Uncounted(), asyncio.get_running_loop().time, lambda: None)


class BrowserAdmission(Admission):
    """A browser's connection, of which also one gives way that has sent a head and keeps its form to itself.

    Args:
        arguments: Of :class:`Admission`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._in_body_since: float | None = None
        """When that was first seen, as nothing says when a head was complete."""

    def waiting(self, now: float) -> Waiting | None:
        """Return what it waits for; ``None`` while it has a whole request."""
        found = super().waiting(now)
        if found is not None or self._connection is None or not self._connection.is_in_body:
            self._in_body_since = None
            return found
        if self._in_body_since is None:
            self._in_body_since = now
        is_late = now - self._in_body_since >= LATE_SECONDS
        return Waiting(_LATE_RANK, self._in_body_since) if is_late else None


@asynccontextmanager
async def admitting(settings: Settings) -> AsyncIterator[OverloadManager]:
    """Admit connections while the context is open."""
    overload = overload_manager(settings)
    watching = asyncio.create_task(overload.run())
    try:
        yield overload
    finally:
        watching.cancel()
