"""Computes the reference metrics of every active version each minute, from the windows of that minute."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from understudy.core.windows.histogram import merged
from understudy.core.windows.metrics import metrics_of, version_counts
from understudy.core.windows.window import Window
from understudy.monitoring.score_tenths import ScoreTenths
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import ActiveVersion, MetricStore, MetricValue
from understudy.ports.monitoring.window_log import WindowLog

MINUTE_SECONDS = 60.0
SETTLE_SECONDS = 10.0
"""A minute is measured for the first time this much after its end: by then its last window has been shipped."""
LATE_SECONDS = 4 * MINUTE_SECONDS
"""Minutes that are measured again: a shipper replaces a window for three minutes after its start."""
AT_ONCE_SECONDS = 10 * MINUTE_SECONDS
MAX_SECONDS = 3_600.0
"""Of an outage the last hour is measured, ten minutes of it at a time; older minutes stay without metrics."""


class MetricsJob:
    """Writes ``PredictionMetric``, and gives ``on_active`` the names of the models that have an active version.

    ``tenths`` shows the scores of the last minute in tenths of the champion's.
    """

    def __init__(
        self,
        store: MetricStore,
        windows: WindowLog,
        on_active: Callable[[Collection[str]], None] = lambda _: None,
        tenths: ScoreTenths | None = None,
    ) -> None:
        self._store = store
        self._windows = windows
        self._on_active = on_active
        self._tenths = tenths

    async def tick(self, epoch: Epoch) -> None:
        """Measure the minutes that are over and not yet measured, and the latest ones again.

        Raises:
            LeadershipLost: Another monitor leads; what was not written is that one's.
        """
        active = await self._store.active()
        self._on_active({version.model_name for version in active.versions})
        if self._tenths is not None:
            await self._tenths.renew(active)
        until = (active.now - SETTLE_SECONDS) // MINUTE_SECONDS * MINUTE_SECONDS
        ordered = sorted(active.versions, key=lambda version: _since(version, until))
        for since, versions in groupby(ordered, key=lambda version: _since(version, until)):
            await self._measure(list(versions), since, min(until, since + AT_ONCE_SECONDS), epoch)

    async def _measure(self, versions: Sequence[ActiveVersion], since: float, until: float, epoch: Epoch) -> None:
        windows = await self._windows.of_versions([version.id for version in versions], since, until)
        parts: dict[tuple[int, float], list[Window]] = {}
        for window in windows:
            minute = window.key.start // MINUTE_SECONDS * MINUTE_SECONDS
            parts.setdefault((window.key.model_version_id, minute), []).append(window)
        minutes = [since + place * MINUTE_SECONDS for place in range(round((until - since) / MINUTE_SECONDS))]
        values = [
            MetricValue(version.id, name, value, minute + MINUTE_SECONDS)
            for version in versions
            for minute in minutes
            for name, value in metrics_of(
                version_counts(parts.get((version.id, minute), ()), version.threshold)
            ).items()
        ]
        await self._store.add(values, epoch=epoch)
        if self._tenths is not None:
            newest = {version_id: kept for (version_id, minute), kept in parts.items() if minute == minutes[-1]}
            self._tenths.show(
                versions, {version_id: merged(one.scores for one in kept) for version_id, kept in newest.items()}
            )


def _since(version: ActiveVersion, until: float) -> float:
    """Return the start of the first minute that is to be measured."""
    latest = until - LATE_SECONDS
    if version.measured_until is None:
        return latest
    return max(min(version.measured_until, latest), until - MAX_SECONDS)
