"""Deletes what is older than anybody looks at, a bounded number of rows at a time."""

import time
from collections.abc import Callable

from understudy.core.drift_hours import KEPT_SECONDS
from understudy.ports import Epoch, MetricStore, WindowLog

DAY_SECONDS = 86_400.0
PIECE_ROWS = 1_000
PIECES = 5
"""Of one tick."""


class RetentionJob:
    """Forgets windows and hours.

    Args:
        windows: The windows.
        store: The hours that drift is judged from.
        window_days: How long windows are kept; those of an open rollout are kept longer.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self, windows: WindowLog, store: MetricStore, *, window_days: float, now: Callable[[], float] = time.time
    ) -> None:
        self._windows = windows
        self._store = store
        self._window_days = window_days
        self._now = now

    async def tick(self, epoch: Epoch) -> None:
        """Delete the next pieces."""
        now = self._now()
        await self._store.forget_hours(now - KEPT_SECONDS, epoch=epoch)
        for _ in range(PIECES):
            if await self._windows.forget(now - self._window_days * DAY_SECONDS, PIECE_ROWS) < PIECE_ROWS:
                return
