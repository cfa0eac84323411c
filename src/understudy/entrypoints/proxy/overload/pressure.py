"""Pressure on a process: whether its memory or the lag of its event loop lets it take no further connection."""

from collections import deque
from collections.abc import Callable

TICK_SECONDS = 0.25
"""Time between two measurements. Source: Envoy's overload manager, as its best practices for an edge proxy set it."""
LAG_TICKS = 4
"""The event loop lags when it was late at each of so many ticks. One long turn, or a process that was stopped and goes
on, is no overload: as in CoDel (RFC 8289), the smallest delay of an interval is what tells a standing queue."""
CALM_RATIO = 0.95
"""Share of the memory limit below which the pressure ends: closed connections give back a little at a time."""


class Pressure:
    """Watches two resources; :attr:`reason` names the one that is short.

    Args:
        max_lag_seconds: Lag of the event loop from which on new connections are refused; 0: whatever it is.
        max_memory_bytes: The same for the resident memory.
        resident_bytes: Returns the resident memory; 0 where the system does not say.
    """

    def __init__(self, *, max_lag_seconds: float, max_memory_bytes: int, resident_bytes: Callable[[], int]) -> None:
        self.max_lag_seconds = max_lag_seconds
        self.max_memory_bytes = max_memory_bytes
        self._resident_bytes = resident_bytes
        self._lags: deque[float] = deque(maxlen=LAG_TICKS)
        self._is_memory_short = False
        self.memory_bytes = 0

    def observe(self, lag_seconds: float) -> None:
        """Measure the memory, and note how late this tick is."""
        self._lags.append(lag_seconds)
        if self.max_memory_bytes:
            self.memory_bytes = self._resident_bytes()
            ratio = CALM_RATIO if self._is_memory_short else 1.0
            self._is_memory_short = self.memory_bytes >= ratio * self.max_memory_bytes

    @property
    def lag_seconds(self) -> float:
        """The smallest lag of the last ticks; 0 before there were enough."""
        return min(self._lags) if len(self._lags) == LAG_TICKS else 0.0

    @property
    def reason(self) -> str | None:
        """``memory`` or ``lag``; ``None`` without pressure."""
        if self._is_memory_short:
            return "memory"
        return "lag" if 0 < self.max_lag_seconds <= self.lag_seconds else None
