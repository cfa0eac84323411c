"""The registries of images are away for a while: what callers, servers and on-call have of it, by the wall clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, NamedTuple

from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS
from watch.pager import Pager, a_pager
from watch.programs import Prometheus, a_prometheus, an_alertmanager

from rigs.lifecycle.source_stack import SourceStack

ALERT: Final = "VersionSourceBehind"
ALERT_AFTER_SECONDS: Final = 600.0
"""A registry that is away for so long is told of within that time; one that is back sooner may be."""
CALLS_PER_SECOND: Final = 10.0
LONGEST_SECONDS: Final = 7_200.0
SETTLE_SECONDS: Final = 30.0
"""Until Prometheus has read everything several times."""
RESOLVED_SECONDS: Final = 240.0
"""After the last source is back: scrape, evaluation, and Alertmanager's ``group_interval`` of two minutes."""
LOOK_SECONDS: Final = 1.0
FIRING: Final = 'ALERTS{alertstate="firing"}'
ROUTING_KEY: Final = "0123456789abcdef" * 2


class Away(NamedTuple):
    """What was seen while the registries were away, and after they were back."""

    seconds: float
    load: Load
    """Calls of a version whose registry was away."""
    versions: int
    looks: int
    changes: list[str]
    """What a server had otherwise than before."""
    alerts: dict[str, float]
    """By name, how long after the registries went away it was seen to fire first."""
    told: list[str]
    """Titles of what on-call was sent while they were away, and until all was resolved."""
    resolved_seconds: float | None
    """After the registries were back."""

    @property
    def is_good(self) -> bool:
        """Whether all was as it should be."""
        return not self.load.failed and not self.changes and self.is_told_well

    @property
    def is_told_well(self) -> bool:
        """Whether there was the one alert, which was told once, and nothing else; none where it need not be."""
        expected = [ALERT] if self.seconds >= ALERT_AFTER_SECONDS or self.alerts else []
        is_once = self.incidents == len(expected)
        return list(self.alerts) == expected and is_once and self.resolved_seconds is not None

    @property
    def incidents(self) -> int:
        """How many different alerts on-call was sent."""
        return len({title for title in self.told if title.startswith("FIRING")})


async def be_away(sources: SourceStack, seconds: float, *, hangs: bool) -> Away:
    """Take all registries away for a time, and bring them back.

    With ``hangs`` they take connections and answer nothing; else they refuse them.
    """
    async with _watched(sources) as (prometheus, pager), _called(sources) as load:
        await asyncio.sleep(SETTLE_SECONDS)
        fired_before = set(_firing(prometheus))
        before, began = await sources.loaded(), time.monotonic()
        for registry in sources.registries.values():
            registry.hang() if hangs else registry.stop()
        alerts: dict[str, float] = {}
        changes: list[str] = []
        looks = 0
        while time.monotonic() < began + seconds:
            now = await sources.loaded()
            changes += [f"after {time.monotonic() - began:.0f} s: {row}" for row in set(now) ^ set(before)]
            for name in await asyncio.to_thread(_firing, prometheus):
                alerts.setdefault(name, time.monotonic() - began)
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)
        for registry in sources.registries.values():
            registry.stop()
            registry.start()
        resolved = await _resolved(sources, prometheus, pager, is_told=bool(alerts))
        alerts = {name: at for name, at in alerts.items() if name not in fired_before}
        return Away(seconds, load, len(before), looks, changes[:10], alerts, _titles(pager), resolved)


async def _resolved(sources: SourceStack, prometheus: Prometheus, pager: Pager, *, is_told: bool) -> float | None:
    """Wait until sources are followed again and on-call knows; return how long that took, ``None``: too long."""
    began = time.monotonic()
    await sources.until_looked(1)
    while time.monotonic() < began + RESOLVED_SECONDS:
        ended = any(title.startswith("RESOLVED") for title in _titles(pager))
        if ALERT not in await asyncio.to_thread(_firing, prometheus) and ended >= is_told:
            return time.monotonic() - began
        await asyncio.sleep(LOOK_SECONDS)
    return None


def _firing(prometheus: Prometheus) -> list[str]:
    return sorted({series.labels["alertname"] for series in prometheus.query(FIRING)})


def _titles(pager: Pager) -> list[str]:
    """Return what a chat and on-call were told, by their titles."""
    with pager.lock:
        chat = [str(_attachment(message).get("title", "")) for message in pager.channel]
        return [*chat, *(f"FIRING: {told.alert}" for told in pager.opened())]


def _attachment(message: dict[str, Any]) -> dict[str, Any]:
    attachments: list[dict[str, Any]] = message.get("attachments") or [{}]
    return attachments[0]


@asynccontextmanager
async def _watched(sources: SourceStack) -> AsyncIterator[tuple[Prometheus, Pager]]:
    """Have Prometheus and Alertmanager watch, with the committed configuration and intervals."""
    with _watching(sources) as watching:
        yield watching


@contextmanager
def _watching(sources: SourceStack) -> Iterator[tuple[Prometheus, Pager]]:
    folder = sources.stack.folder
    with (
        a_pager(ROUTING_KEY) as pager,
        an_alertmanager(folder / "alertmanager", pager.url, ROUTING_KEY) as alertmanager,
        a_prometheus(folder / "prometheus", sources.targets, alertmanager=alertmanager) as prometheus,
    ):
        yield prometheus, pager


@asynccontextmanager
async def _called(sources: SourceStack) -> AsyncIterator[Load]:
    """Call the model meanwhile."""
    load, bodies = Load(), PREDICT_BODIES
    calls = run_load(
        sources.stack.proxy_port,
        VISITS,
        lambda number: bodies[number % len(bodies)],
        per_second=CALLS_PER_SECOND,
        seconds=LONGEST_SECONDS,
        load=load,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(calls)
        try:
            yield load
        finally:
            load.is_over = True
