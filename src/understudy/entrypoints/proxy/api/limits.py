"""A process's overload manager, with limits from the settings, its descriptors and its container's memory."""

import asyncio

from understudy.adapters.telemetry.process_usage import memory_limit_bytes, resident_bytes
from understudy.entrypoints.proxy.server.descriptors import connection_limits, descriptor_limit
from understudy.entrypoints.proxy.server.heap import HeapShrinker
from understudy.entrypoints.proxy.server.overload import OverloadManager
from understudy.entrypoints.proxy.server.pressure import Pressure
from understudy.ports.telemetry import Telemetry
from understudy.settings import Settings

MEMORY_RATIO = 0.95
"""Share of the container's memory limit from which on there is memory pressure. Source: Envoy's best practices for an
edge proxy, which shrink the heap from there on."""


def overload_manager(settings: Settings, telemetry: Telemetry) -> OverloadManager:
    """Return the overload manager of this process and event loop; what is not set comes from the process's limits."""
    max_memory_bytes = settings.max_memory_bytes
    if max_memory_bytes is None:
        max_memory_bytes = int(MEMORY_RATIO * (memory_limit_bytes() or 0) / settings.workers)
    now = asyncio.get_running_loop().time
    return OverloadManager(
        connection_limits(descriptor_limit(), settings.max_connections, settings.max_connections_per_address),
        Pressure(
            max_lag_seconds=settings.max_lag_seconds, max_memory_bytes=max_memory_bytes, resident_bytes=resident_bytes
        ),
        telemetry,
        now,
        HeapShrinker(now).shrink,
    )
