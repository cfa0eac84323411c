"""Deletes what is older than anybody looks at, or may, a bounded number of rows at a time."""

import time
from collections.abc import Callable

from understudy.core.drift_hours import KEPT_SECONDS
from understudy.ports import Epoch, MetricStore, WindowLog

DAY_SECONDS = 86_400.0
PIECE_ROWS = 1_000
PIECES = 5
"""Of one tick."""
PIECE_INPUTS = 5_000
PIECES_OF_INPUTS = 10
"""Of one tick, which is a minute: they are erased as fast as 800 calls a second have them logged."""


class RetentionJob:
    """Forgets windows, hours, metrics and logged inputs.

    Args:
        windows: The windows.
        store: The hours that drift is judged from, the metrics and the logged inputs.
        window_days: How long windows are kept; those of an open rollout are kept longer.
        metric_days: How long metrics are kept.
        input_days: How long logged inputs are kept.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        windows: WindowLog,
        store: MetricStore,
        *,
        window_days: float,
        metric_days: float,
        input_days: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._windows = windows
        self._store = store
        self._window_days = window_days
        self._metric_days = metric_days
        self._input_days = input_days
        self._now = now

    async def tick(self, epoch: Epoch) -> None:
        """Delete the next pieces."""
        now = self._now()
        await self._store.forget_hours(now - KEPT_SECONDS, epoch=epoch)
        for _ in range(PIECES):
            if await self._windows.forget(now - self._window_days * DAY_SECONDS, PIECE_ROWS) < PIECE_ROWS:
                break
        for _ in range(PIECES):
            expired = now - self._metric_days * DAY_SECONDS
            if await self._store.forget_metrics(expired, PIECE_ROWS, epoch=epoch) < PIECE_ROWS:
                break
        for _ in range(PIECES_OF_INPUTS):
            expired = now - self._input_days * DAY_SECONDS
            if not await self._store.forget_inputs(expired, PIECE_INPUTS, epoch=epoch):
                break
