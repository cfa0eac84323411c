"""Tells silent agents from a time without Postgres, after which every agent's last report is old."""

from collections.abc import Callable
from math import inf
from typing import Final

GAP_SECONDS: Final = 10.0
"""A longer gap between two readings, or a larger jump of Postgres' clock, begins the watch anew."""
WATCHED_SECONDS: Final = 60.0
"""How long the leader must have read without a gap before it acts on an agent's silence."""


class SilenceWatch:
    """Notes readings by the monotonic clock ``now``, and by Postgres' own."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = inf
        self._last: tuple[float, float] | None = None
        """When it was read last, by both clocks."""

    def note(self, read_at: float) -> None:
        """Take down a reading at the time ``read_at`` of Postgres' clock, in seconds."""
        now = self._now()
        if self._last is None or self._is_broken(now, read_at, *self._last):
            self._since = now
        self._last = (now, read_at)

    @property
    def is_long_enough(self) -> bool:
        """Whether agents could have reported all the while."""
        return self._now() - self._since >= WATCHED_SECONDS

    @staticmethod
    def _is_broken(now: float, read_at: float, last_now: float, last_read_at: float) -> bool:
        passed = now - last_now
        return passed > GAP_SECONDS or abs(read_at - last_read_at - passed) > GAP_SECONDS
