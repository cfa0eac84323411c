"""The process that follows sources: a look from time to time, or at once when a webhook comes; metrics and a log."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

import structlog

from understudy.bootstrap.registering.version_sources import OpenSource, SourceMetrics, secrets_of
from understudy.core.rollout.sources.version_source import SourceState
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.source.webhooks import webhook_port
from understudy.entrypoints.logs import log_as_json
from understudy.entrypoints.metrics_port import metrics_port
from understudy.errors import UnderstudyError
from understudy.rollout.source_follower import SourceReport, not_looked_at

HASTE_SECONDS = 1.0
"""Between two looks that webhooks ask for."""
_log = structlog.get_logger(__name__)
_LATE = (SourceState.WAITING, SourceState.REFUSED)


class Following(NamedTuple):
    """What is followed, and how."""

    sources: Sequence[OpenSource]
    every_seconds: float
    look: Callable[[OpenSource], Awaitable[SourceReport]]


class Ports(NamedTuple):
    """Where the process listens; ``None``: it does not."""

    webhook_host: str
    webhook_port: int | None
    metrics_host: str
    metrics_port: int | None


async def follow_until_stopped(following: Following, ports: Ports) -> int:
    """Look again and again until SIGTERM or SIGINT.

    Each source has its own looks, so that a registry which hangs holds up no other. A look is broken off wherever it
    is: the next one, of whatever process, does what is left.

    Returns:
        The exit status: 1 when a port is taken.
    """
    log_as_json()
    loop, wakes = asyncio.get_running_loop(), [asyncio.Event() for _ in following.sources]
    specs = [one.spec for one in following.sources]
    telling = _Telling(SourceMetrics(specs))

    def wake() -> None:
        for event in wakes:
            event.set()

    async with AsyncExitStack() as stack:
        try:
            if ports.metrics_port is not None:
                page = metrics_port(ports.metrics_host, ports.metrics_port, telling.metrics.exposition, is_shared=False)
                _log.info("sources.metrics", port=await stack.enter_async_context(page))
            if ports.webhook_port is not None:
                hooks = webhook_port(ports.webhook_host, ports.webhook_port, secrets_of(specs), wake)
                _log.info("sources.webhooks", port=await stack.enter_async_context(hooks))
        except OSError as problem:
            _log.error("sources.port_taken", problem=str(problem), next="choose ports that are free")
            return 1
        each = zip(following.sources, wakes, strict=True)
        looking = asyncio.gather(*(_look_again(following, one, event, telling) for one, event in each))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, looking.cancel)
        with suppress(asyncio.CancelledError):
            await looking
    return 0


async def _look_again(following: Following, one: OpenSource, wake: asyncio.Event, telling: "_Telling") -> None:
    while True:
        wake.clear()
        try:
            report = await following.look(one)
        except (UnderstudyError, CommandRefused, OSError) as problem:
            report = not_looked_at(one.spec, str(problem) or type(problem).__name__)
        telling.tell(report)
        await asyncio.sleep(min(HASTE_SECONDS, following.every_seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout(following.every_seconds):
                await wake.wait()


class _Telling:
    """Logs what changes, and sets the metrics of each source."""

    def __init__(self, metrics: SourceMetrics) -> None:
        self.metrics = metrics
        self._told: dict[str, SourceReport] = {}
        self._since: dict[tuple[str, str], float] = {}

    def tell(self, report: SourceReport) -> None:
        """Tell how a source stands after a look."""
        self._measure(report.name, "source_away_seconds", holds=report.state is SourceState.AWAY)
        self._measure(report.name, "source_waiting_seconds", holds=report.state in _LATE)
        self.metrics.count("source_looks_total", report.name, report.state)
        if self._told.get(report.name) != (said := report._replace(registered=False, started=None)):
            level = _log.info if report.state in (SourceState.DONE, SourceState.UNSET) else _log.warning
            level("source.stands", **report._asdict())
        self._told[report.name] = said

    def _measure(self, name: str, metric: str, *, holds: bool) -> None:
        """Set how long something has held."""
        if not holds:
            self._since.pop((name, metric), None)
        since = self._since.setdefault((name, metric), time.monotonic()) if holds else None
        self.metrics.set(metric, 0.0 if since is None else time.monotonic() - since, name)
