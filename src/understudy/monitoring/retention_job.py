"""Deletes rows past their retention, a bounded number at a time."""

import time
from collections.abc import Callable, Mapping

from understudy.core.drift.hours import KEPT_SECONDS
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.metric_store import MetricStore
from understudy.ports.monitoring.retention_store import GrowingTable, RetentionStore
from understudy.ports.monitoring.window_log import WindowLog

DAY_SECONDS = 86_400.0
PIECE_ROWS = 1_000
PIECES = 5
"""Of one tick."""
PIECE_INPUTS = 5_000
PIECES_OF_INPUTS = 10
"""Of one tick, which is a minute: they are erased as fast as 800 calls a second have them logged."""
PIECE_EVENTS = 100
"""A verdict is hundreds of kilobytes, and Postgres takes each of them apart."""
PIECE_OUTCOMES = 5_000
PIECES_OF_OUTCOMES = 10

ALERT_DAYS = 30.0
DEAD_LETTER_DAYS = 90.0
AUDIT_DAYS = 731.0
"""This and the next two are a day more than the database's own guards ask for (migrations 0007, 0012, 0021)."""
SPOOL_OFFSET_DAYS = 366.0
POLICY_CHANGE_DAYS = 31.0
WARM_UP_DAYS = 1 / 24
"""What proxies answered is in the event of the rollout."""
NOTIFICATION_DAYS = 30.0
_PIECES: Mapping[GrowingTable, tuple[int, int]] = {
    GrowingTable.ROLLOUT_EVENTS: (PIECE_EVENTS, PIECES),
    GrowingTable.ROLLOUTS: (PIECE_EVENTS, PIECES),
    GrowingTable.OUTCOMES: (PIECE_OUTCOMES, PIECES_OF_OUTCOMES),
}
"""Rows of a piece, and pieces of one tick, where they are not those of windows and metrics."""


class RetentionJob:
    """Forgets windows, hours, metrics, logged inputs, and what the control loop wrote in all its other tables.

    Windows of an open rollout are kept longer; events of finished rollouts as long as metrics.
    """

    def __init__(
        self,
        windows: WindowLog,
        store: MetricStore,
        growing: RetentionStore,
        *,
        window_days: float,
        metric_days: float,
        input_days: float,
        outcome_days: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._windows = windows
        self._store = store
        self._growing = growing
        self._window_days = window_days
        self._metric_days = metric_days
        self._input_days = input_days
        self._now = now
        self._days: Mapping[GrowingTable, float] = {
            GrowingTable.ALERTS: ALERT_DAYS,
            GrowingTable.OUTCOMES: outcome_days,
            GrowingTable.ROLLOUT_EVENTS: metric_days,
            GrowingTable.ROLLOUTS: AUDIT_DAYS,
            GrowingTable.AUDIT: AUDIT_DAYS,
            GrowingTable.REGISTRY_AUDIT: AUDIT_DAYS,
            GrowingTable.ERASURES: AUDIT_DAYS,
            GrowingTable.DEAD_LETTERS: DEAD_LETTER_DAYS,
            GrowingTable.SPOOL_OFFSETS: SPOOL_OFFSET_DAYS,
            GrowingTable.POLICY_CHANGES: POLICY_CHANGE_DAYS,
            GrowingTable.WARM_UPS: WARM_UP_DAYS,
            GrowingTable.NOTIFICATIONS: NOTIFICATION_DAYS,
        }

    async def tick(self, epoch: Epoch) -> None:
        """Delete the next pieces.

        Raises:
            LeadershipLost: Another monitor leads; what was not deleted is that one's.
            RegistryUnavailable, MigrationNeeded: The last failure, once every table had its turn.
        """
        await self._forget_measured(epoch)
        failures: list[RegistryUnavailable | MigrationNeeded] = []
        for table, days in self._days.items():
            try:
                await self._forget(table, days, epoch)
            except (RegistryUnavailable, MigrationNeeded) as problem:  # a right that is missing on one of them, say
                failures.append(problem)
        if failures:
            raise failures[-1]

    async def _forget(self, table: GrowingTable, days: float, epoch: Epoch) -> None:
        rows, pieces = _PIECES.get(table, (PIECE_ROWS, PIECES))
        for _ in range(pieces):
            if await self._growing.forget(table, days, rows, epoch=epoch) < rows:
                break

    async def _forget_measured(self, epoch: Epoch) -> None:
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
