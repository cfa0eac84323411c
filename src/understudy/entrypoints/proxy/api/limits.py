"""A process's overload manager and body budget, from the settings, its descriptors and its container's memory."""

import asyncio

from understudy.adapters.telemetry.process_usage import memory_limit_bytes, resident_bytes
from understudy.entrypoints.proxy.overload.body_budget import BodyBudget
from understudy.entrypoints.proxy.overload.descriptors import connection_limits, descriptor_limit
from understudy.entrypoints.proxy.overload.heap import HeapShrinker
from understudy.entrypoints.proxy.overload.overload import OverloadManager
from understudy.entrypoints.proxy.overload.pressure import Pressure
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.settings import Settings

MEMORY_RATIO = 0.95
"""Share of the container's memory limit from which on there is memory pressure. Source: Envoy's best practices for an
edge proxy, which shrink the heap from there on."""
BODIES_RATIO = 0.25
"""Share of the memory at which there is pressure that long bodies may take. A body is joined and parsed, which takes
about as much again; with both, a process that uses half of its memory otherwise stays below the pressure."""
USUAL_BODIES_BYTES = 256 * 1_048_576
"""The same where no memory is known to be the limit: 64 of the longest bodies of rank calls."""


def overload_manager(settings: Settings, telemetry: Telemetry) -> OverloadManager:
    """Return the overload manager of this process and event loop; what is not set comes from the process's limits."""
    now = asyncio.get_running_loop().time
    return OverloadManager(
        connection_limits(descriptor_limit(), settings.max_connections, settings.max_connections_per_address),
        Pressure(
            max_lag_seconds=settings.max_lag_seconds,
            max_memory_bytes=_max_memory_bytes(settings),
            resident_bytes=resident_bytes,
        ),
        telemetry,
        now,
        HeapShrinker(now).shrink,
    )


def body_budget(settings: Settings, overload: OverloadManager) -> BodyBudget:
    """Return the body budget of this process: one address has half of it, and room for a body of any permitted length.

    Args:
        settings: Have the limits of memory and of one body.
        overload: Is told of each refusal.
    """
    longest = max(settings.body_limit_bytes, settings.rank_body_limit_bytes)
    limit_bytes = int(BODIES_RATIO * _max_memory_bytes(settings)) or USUAL_BODIES_BYTES
    per_address_bytes = max(limit_bytes // 2, longest)
    return BodyBudget(max(limit_bytes, 2 * per_address_bytes), per_address_bytes, overload.refuse_body)


def _max_memory_bytes(settings: Settings) -> int:
    if settings.max_memory_bytes is not None:
        return settings.max_memory_bytes
    return int(MEMORY_RATIO * (memory_limit_bytes() or 0) / settings.workers)
