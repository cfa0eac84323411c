"""Work beside the requests: tasks that go on for as long as the process lives, and long work in short turns."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, NoReturn

import structlog

from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
TURN_SECONDS = 0.002
"""How long the work of many models keeps the event loop; then requests have a turn. Not a thread: it would take the
interpreter from the loop after each of its system calls, and callers of 10,000 models' proxies waited for seconds."""


async def run_forever(
    name: str, work: Callable[[], Awaitable[None]], telemetry: Telemetry, pause_seconds: float = PAUSE_SECONDS
) -> NoReturn:
    """Do ``work`` until cancelled; after it failed or ended, again after a pause.

    ``work`` handles the failures that it expects. Any other is a defect: it is logged with its traceback and counted by
    ``name``, and costs the task a pause instead of its life.
    """
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - logged and counted; the task goes on
            _log.exception("background.failed", task=name)
            telemetry.count("background_failures_total", name)
        await asyncio.sleep(pause_seconds)


def run_until_closed(
    name: str, work: Callable[[], Awaitable[None]], telemetry: Telemetry, stack: AsyncExitStack
) -> None:
    """Start :func:`run_forever` in this event loop; when ``stack`` closes, the task is cancelled and awaited."""
    task = asyncio.get_running_loop().create_task(run_forever(name, work, telemetry))
    stack.push_async_callback(end_tasks, [task])


async def in_turns(steps: Iterable[object], now: Callable[[], float]) -> None:
    """Take all steps, and let the event loop serve requests whenever :data:`TURN_SECONDS` are over."""
    turn_ends_at = now() + TURN_SECONDS
    for _ in steps:
        if now() >= turn_ends_at:
            await asyncio.sleep(0)
            turn_ends_at = now() + TURN_SECONDS


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended, however they do."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
