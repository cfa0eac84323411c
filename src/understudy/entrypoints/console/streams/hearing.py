"""Hears of changes of policies from Postgres, over one connection, and has what is watched read anew."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from understudy.background.tasks import end_tasks, run_forever
from understudy.entrypoints.console.connections import Uncounted
from understudy.entrypoints.console.streams.watches import Watches
from understudy.errors import RegistryError
from understudy.ports.registry.policy import PolicyChange

_log = structlog.get_logger(__name__)
Listen = Callable[[Callable[[PolicyChange], None]], Awaitable[None]]
RETRY_SECONDS = 1.0


@asynccontextmanager
async def hearing(listen: Listen, watches: Watches) -> AsyncIterator[None]:
    """Hear while the context is open. Without a connection pages are read at their periods, as they are anyway."""
    is_deaf = False

    def told(change: PolicyChange) -> None:
        nonlocal is_deaf
        if is_deaf:
            _log.info("console.hears_again")
        is_deaf = False
        watches.moved(change.model_name)

    async def hear() -> None:
        nonlocal is_deaf
        try:
            await listen(told)
        except RegistryError as problem:
            if not is_deaf:  # once, and not each second for as long as Postgres is away
                _log.warning("console.hears_nothing", why=problem.detail)
            is_deaf = True

    task = asyncio.create_task(run_forever("console_listen", hear, Uncounted(), RETRY_SECONDS))
    try:
        yield
    finally:
        await end_tasks([task])
