"""Hedged requests: when a call that has no answer yet also goes to a second replica, and how often that may happen.

Source:
    Seed 004 (hedged backup requests against latency spikes); the delay of a 95th percentile, which limits the further
    load to about 5 %: Dean and Barroso, The Tail at Scale, 2013.
"""

from bisect import bisect_left, insort
from collections import deque
from math import ceil
from typing import NamedTuple

WINDOW_CALLS = 100
"""Calls that a replica's percentile is of: five of them were slower."""
MIN_CALLS = 20
"""Calls before there is a percentile: of fewer, the 95th is the slowest one, which says nothing."""
P95_RANK = 0.95
MIN_P95_SECONDS = 0.001
"""uvloop's timers have whole milliseconds: half of one would be none, and a hedge for each call."""
HEDGE_BURST = 10.0
"""Hedges that may be saved up: calls that wait for a replica when it begins to stall."""
HEDGE_RESERVE = 5.0
"""Of these, hedges that are kept for calls that are late twice over. Every twentieth call is late and most of those end
a moment later: without the reserve they would have spent the budget by the time a replica stalls."""


class RecentTimes:
    """How long a replica took for its last calls of one method. At most ``WINDOW_CALLS`` of them are kept."""

    __slots__ = ("_in_order", "_latest")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._in_order: list[float] = []

    def add(self, seconds: float) -> None:
        """Count one call; the oldest one is forgotten when there are enough."""
        if len(self._latest) == WINDOW_CALLS:
            del self._in_order[bisect_left(self._in_order, self._latest.popleft())]
        self._latest.append(seconds)
        insort(self._in_order, seconds)

    @property
    def p95_seconds(self) -> float | None:
        """How long to wait before a hedge: the 95th percentile (nearest rank), at least ``MIN_P95_SECONDS``.

        ``None`` while fewer than ``MIN_CALLS`` are known.
        """
        count = len(self._in_order)
        if count < MIN_CALLS:
            return None
        return max(self._in_order[ceil(P95_RANK * count) - 1], MIN_P95_SECONDS)


class HedgeBudget(NamedTuple):
    """Hedges that may still be sent: a share of the calls, saved up to a burst, so that they cannot add to an overload.

    A new budget is empty: the first hedge has to be earned.
    """

    ratio: float
    """Hedges earned by one call."""
    tokens: float = 0.0

    def allows(self, *, urgent: bool) -> bool:
        """Whether one more hedge may be sent; ``urgent``: for a call that was refused one and still waits."""
        return self.tokens >= (1 if urgent else 1 + HEDGE_RESERVE)

    def after_call(self) -> "HedgeBudget":
        """Return the budget after a caller's call."""
        return HedgeBudget(self.ratio, min(self.tokens + self.ratio, HEDGE_BURST))

    def after_hedge(self) -> "HedgeBudget":
        """Return the budget after a hedge."""
        return HedgeBudget(self.ratio, self.tokens - 1)
