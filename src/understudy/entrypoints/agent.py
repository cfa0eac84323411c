"""The agent process: signals, event loop, metrics port, and the connection that hears of placements."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress

import structlog

from understudy.background.tasks import end_tasks
from understudy.bootstrap.agent import AgentParts, open_agent
from understudy.entrypoints.logs import log_as_json
from understudy.entrypoints.metrics_port import Questions, metrics_port
from understudy.errors import RegistryError
from understudy.settings import Settings

_log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
"""Pause after the listening connection was lost; rounds go on meanwhile."""
OpenAgent = Callable[[Settings], AbstractAsyncContextManager[AgentParts]]


def serve(settings: Settings, opener: OpenAgent = open_agent) -> int:
    """Keep a model server at what is wanted until SIGTERM or SIGINT.

    What is loaded then stays loaded, and its endpoints stay.

    Returns:
        The exit status: 0 once the lease is released, 1 when the metrics port is taken.
    """
    log_as_json()
    return asyncio.run(_serve(settings, opener))


async def _serve(settings: Settings, opener: OpenAgent) -> int:
    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(opener(settings))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, parts.worker.stop)
        host, port = settings.metrics_host, settings.agent_metrics_port
        try:
            questions = _questions(parts, settings.server_drain_seconds)
            page = parts.telemetry.exposition
            await stack.enter_async_context(metrics_port(host, port, page, is_shared=False, questions=questions))
        except OSError as problem:
            advice = "set UNDERSTUDY_AGENT_METRICS_PORT to a port that is free"
            _log.error("agent.metrics_port_taken", host=host, port=port, problem=str(problem), next=advice)
            return 1
        listening = loop.create_task(_listen(parts.listen))
        await parts.worker.run()
        await end_tasks([listening])
    return 0


def _questions(parts: AgentParts, drain_seconds: float) -> Questions:
    """Return what the metrics port answers beside metrics: what starts and ends the pod of a model server asks that."""

    async def is_ready() -> bool:
        return parts.lifetime.is_ready

    async def drain() -> bool:
        parts.lifetime.drain()
        return True

    async def is_drained() -> bool:
        return await parts.lifetime.drained(drain_seconds)

    return {"GET /readyz": is_ready, "POST /drain": drain, "GET /drained": is_drained}


async def _listen(listen: Callable[[], Awaitable[None]]) -> None:
    while True:
        with suppress(RegistryError):  # the rounds say that Postgres is away
            await listen()
        await asyncio.sleep(RETRY_SECONDS)
