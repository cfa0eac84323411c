"""The windows of open rollouts, of which a tick reads only those that may still change.

A rollout of a day has thousands of windows for each proxy, and reading them all takes 0.04 ms each (measured: a third
of a second for ten rollouts of 75 minutes). What is older than a few minutes is kept as strata between two ticks, as
long as Postgres says that nothing of it was written since: a proxy that had lost Postgres ships late.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from understudy.core.strata import Strata, join_strata, stratify
from understudy.core.window_builder import OPEN_SECONDS
from understudy.core.windows import WINDOW_SECONDS, Window
from understudy.ports.window_log import WindowLog

SETTLED_SECONDS = OPEN_SECONDS + 4 * WINDOW_SECONDS
"""Windows that start longer ago are closed at every proxy that is not behind."""
STEP_SECONDS = 4 * WINDOW_SECONDS
"""How much is added to what is kept at a time."""


class _Kept(NamedTuple):
    """Strata of all windows that start before a moment."""

    until: int
    mark: str
    strata: Strata


class RolloutSight:
    """Remembers strata of several rollouts.

    Args:
        windows: The windows.
    """

    def __init__(self, windows: WindowLog) -> None:
        self._windows = windows
        self._kept: dict[int, _Kept] = {}

    async def strata(self, rollout_id: int, now: float) -> Strata:
        """Return what :func:`stratify` makes of all windows of a rollout.

        Args:
            rollout_id: The rollout.
            now: Seconds since the epoch.
        """
        settled = int((now - SETTLED_SECONDS) // WINDOW_SECONDS * WINDOW_SECONDS)
        kept = self._kept.get(rollout_id)
        latest = await self._windows.latest_of_rollout(rollout_id, 0 if kept is None else kept.until, settled)
        if kept is not None and latest.mark_before != kept.mark:
            kept = None
            latest = await self._windows.latest_of_rollout(rollout_id, 0, settled)
        windows = latest.windows
        if kept is None or settled - kept.until >= STEP_SECONDS:
            older = [window for window in windows if window.key.start < settled]
            kept = _Kept(settled, latest.mark_settled, _joined(kept, rollout_id, older))
            self._kept[rollout_id] = kept
            windows = [window for window in windows if window.key.start >= settled]
        return _joined(kept, rollout_id, windows)

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Keep nothing of rollouts but these."""
        self._kept = {rollout_id: kept for rollout_id, kept in self._kept.items() if rollout_id in rollout_ids}


def _joined(kept: _Kept | None, rollout_id: int, windows: Sequence[Window]) -> Strata:
    added = stratify(windows, rollout_id)
    return added if kept is None else join_strata([kept.strata, added])
