"""The process that follows sources: a look from time to time, or at once when a webhook comes; metrics and a log."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from threading import Lock
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


async def follow_until_stopped(following: Following, ports: Ports, telling: "Telling") -> int:
    """Look again and again until SIGTERM or SIGINT.

    Each source has its own looks, so that a registry which hangs holds up no other. A look is broken off wherever it
    is: the next one, of whatever process, does what is left.

    Returns:
        The exit status: 1 when a port is taken.
    """
    log_as_json()
    loop, wakes = asyncio.get_running_loop(), [asyncio.Event() for _ in following.sources]
    specs = [one.spec for one in following.sources]

    def wake() -> None:
        for event in wakes:
            event.set()

    async with AsyncExitStack() as stack:
        try:
            if ports.metrics_port is not None:
                page = metrics_port(ports.metrics_host, ports.metrics_port, telling.exposition, is_shared=False)
                _log.info("sources.metrics", port=await stack.enter_async_context(page))
            if ports.webhook_port is not None:
                hooks = webhook_port(ports.webhook_host, ports.webhook_port, secrets_of(specs), wake)
                _log.info("sources.webhooks", port=await stack.enter_async_context(hooks))
        except OSError as problem:
            _log.error("sources.port_taken", problem=str(problem), next="choose ports that are free")
            return 1
        looking = asyncio.ensure_future(look_until_cancelled(following, wakes, telling))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, looking.cancel)
        with suppress(asyncio.CancelledError):
            await looking
    return 0


async def look_until_cancelled(following: Following, wakes: Sequence[asyncio.Event], telling: "Telling") -> None:
    """Look at each source from time to time, and at once when its event is set."""
    each = zip(following.sources, wakes, strict=True)
    await asyncio.gather(*(_look_again(following, one, event, telling) for one, event in each))


async def _look_again(following: Following, one: OpenSource, wake: asyncio.Event, telling: "Telling") -> None:
    while True:
        wake.clear()
        try:
            report = await following.look(one)
        except (UnderstudyError, CommandRefused, OSError) as problem:
            report = not_looked_at(one.spec, str(problem) or type(problem).__name__)
        telling.tell(report)
        haste = min(HASTE_SECONDS, following.every_seconds)
        await asyncio.sleep(haste)
        with suppress(TimeoutError):
            async with asyncio.timeout(following.every_seconds - haste):
                await wake.wait()


class Telling:
    """Logs what changes, and has the metrics of each source.

    Args:
        metrics: Of the sources that are followed.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, metrics: SourceMetrics, now: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._now = now
        self._told: dict[str, SourceReport] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._lock = Lock()
        """A page that was begun before a look would else have what that has ended."""

    def tell(self, report: SourceReport) -> None:
        """Tell how a source stands after a look."""
        self._note(report.name, "source_away_seconds", holds=report.state is SourceState.AWAY)
        self._note(report.name, "source_waiting_seconds", holds=report.state in _LATE)
        self._metrics.count("source_looks_total", report.name, report.state)
        if self._told.get(report.name) != (said := report._replace(registered=False, started=None)):
            level = _log.info if report.state in (SourceState.DONE, SourceState.UNSET) else _log.warning
            level("source.stands", **report._asdict())
        self._told[report.name] = said

    def exposition(self) -> tuple[bytes, str]:
        """Return the page of metrics: what held at a source's last look is taken to hold still.

        It is called in a thread, as ``PrometheusTelemetry.exposition``.
        """
        with self._lock:
            for (name, metric), since in self._since.items():
                self._metrics.set(metric, self._now() - since, name)
        return self._metrics.exposition()

    def _note(self, name: str, metric: str, *, holds: bool) -> None:
        with self._lock:
            if holds:
                self._since.setdefault((name, metric), self._now())
            else:
                self._since.pop((name, metric), None)
                self._metrics.set(metric, 0.0, name)
