"""The monitor process: signals, event loop, metrics port."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import structlog

from understudy.bootstrap.monitor import MonitorParts, open_monitor
from understudy.entrypoints.logs import log_as_json
from understudy.entrypoints.metrics_port import metrics_port
from understudy.settings import Settings

_log = structlog.get_logger(__name__)

OpenMonitor = Callable[[Settings], AbstractAsyncContextManager[MonitorParts]]


def serve(settings: Settings, opener: OpenMonitor = open_monitor) -> int:
    """Lead or stand by until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 once the current job has ended and the lease is released, 1 when the metrics port is taken.
    """
    log_as_json()
    return asyncio.run(_serve(settings, opener))


async def _serve(settings: Settings, opener: OpenMonitor) -> int:
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opener(settings))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, parts.worker.stop)
        host, port = settings.metrics_host, settings.monitor_metrics_port
        try:
            await stack.enter_async_context(metrics_port(host, port, parts.telemetry.exposition, is_shared=False))
        except OSError as problem:
            advice = "set UNDERSTUDY_MONITOR_METRICS_PORT to a port that is free"
            _log.error("monitor.metrics_port_taken", host=host, port=port, problem=str(problem), next=advice)
            return 1
        await parts.worker.run()
    return 0
