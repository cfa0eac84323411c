"""Work beside the requests that has to go on for as long as the process lives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from understudy.ports.telemetry import Telemetry

_log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0


async def run_forever(
    name: str, work: Callable[[], Awaitable[None]], telemetry: Telemetry, pause_seconds: float = PAUSE_SECONDS
) -> NoReturn:
    """Do ``work`` until cancelled; after it failed or ended, again after a pause.

    What ``work`` expects to go wrong it handles itself. Anything else is a defect: it is logged with its traceback and
    counted by ``name``, and costs the task a pause instead of its life.
    """
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - told, and then what must go on goes on
            _log.exception("background.failed", task=name)
            telemetry.count("background_failures_total", name)
        await asyncio.sleep(pause_seconds)
