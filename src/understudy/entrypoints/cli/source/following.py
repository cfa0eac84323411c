"""The process that follows sources: a look from time to time, or at once when a webhook comes; metrics and a log."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple

import structlog

from understudy.bootstrap.registering.version_sources import secrets_of, source_metrics
from understudy.core.rollout.sources.version_source import SourceSpec, SourceState
from understudy.entrypoints.cli.shared.errors import CommandRefused
from understudy.entrypoints.cli.source.webhooks import webhook_port
from understudy.entrypoints.logs import log_as_json
from understudy.entrypoints.metrics_port import metrics_port
from understudy.errors import UnderstudyError
from understudy.rollout.source_follower import SourceReport

LOOK_SECONDS = 300.0
"""Longest look at all sources: what is not done by then is done by the next one."""
HASTE_SECONDS = 1.0
"""Between two looks that webhooks ask for."""
_log = structlog.get_logger(__name__)
_LATE = (SourceState.WAITING, SourceState.REFUSED)


class Following(NamedTuple):
    """What is followed, and how."""

    specs: Sequence[SourceSpec]
    every_seconds: float
    look: Callable[[], Awaitable[Sequence[SourceReport]]]


class Ports(NamedTuple):
    """Where the process listens; ``None``: it does not."""

    webhook_host: str
    webhook_port: int | None
    metrics_host: str
    metrics_port: int | None


async def follow_until_stopped(following: Following, ports: Ports) -> int:
    """Look again and again until SIGTERM or SIGINT.

    A look is broken off wherever it is: the next one, of whatever process, does what is left.

    Returns:
        The exit status: 1 when a port is taken.
    """
    log_as_json()
    loop, wake = asyncio.get_running_loop(), asyncio.Event()
    telling = _Telling(following.specs)
    async with AsyncExitStack() as stack:
        try:
            if ports.metrics_port is not None:
                page = metrics_port(ports.metrics_host, ports.metrics_port, telling.metrics.exposition, is_shared=False)
                _log.info("sources.metrics", port=await stack.enter_async_context(page))
            if ports.webhook_port is not None:
                hooks = webhook_port(ports.webhook_host, ports.webhook_port, secrets_of(following.specs), wake.set)
                _log.info("sources.webhooks", port=await stack.enter_async_context(hooks))
        except OSError as problem:
            _log.error("sources.port_taken", problem=str(problem), next="choose ports that are free")
            return 1
        looking = asyncio.ensure_future(_look_again(following, wake, telling))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, looking.cancel)
        with suppress(asyncio.CancelledError):
            await looking
    return 0


async def _look_again(following: Following, wake: asyncio.Event, telling: "_Telling") -> None:
    while True:
        wake.clear()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                telling.tell(await following.look())
        except (UnderstudyError, CommandRefused, TimeoutError, OSError) as problem:
            telling.tell_failure(problem)
        await asyncio.sleep(min(HASTE_SECONDS, following.every_seconds))
        with suppress(TimeoutError):
            async with asyncio.timeout(following.every_seconds):
                await wake.wait()


class _Telling:
    """Logs what changes, and sets the metrics of each source."""

    def __init__(self, specs: Sequence[SourceSpec]) -> None:
        self.metrics = source_metrics(specs)
        self._told: dict[str, Any] = {}
        self._since: dict[tuple[str, str], float] = {}

    def tell(self, reports: Sequence[SourceReport]) -> None:
        """Tell how all sources stand after a look."""
        for report in reports:
            self._measure(report.name, "source_away_seconds", holds=report.state is SourceState.AWAY)
            self._measure(report.name, "source_waiting_seconds", holds=report.state in _LATE)
            self.metrics.count("source_looks_total", report.name, report.state)
            if self._told.get(report.name) != (said := report._replace(registered=False, started=None)):
                level = _log.info if report.state in (SourceState.DONE, SourceState.UNSET) else _log.warning
                level("source.stands", **report._asdict())
            self._told[report.name] = said

    def tell_failure(self, problem: Exception) -> None:
        """Tell that no source could be looked at: this installation's registry does not answer."""
        words = f"{type(problem).__name__}: {problem}"
        for name in self.metrics.sources:
            self._measure(name, "source_away_seconds", holds=True)
            self.metrics.count("source_looks_total", name, SourceState.AWAY)
        if self._told.get("") != words:
            _log.warning("sources.not_looked_at", problem=words)
        self._told = {"": words}

    def _measure(self, name: str, metric: str, *, holds: bool) -> None:
        """Set how long something has held."""
        if not holds:
            self._since.pop((name, metric), None)
        since = self._since.setdefault((name, metric), time.monotonic()) if holds else None
        self.metrics.set(metric, 0.0 if since is None else time.monotonic() - since, name)
