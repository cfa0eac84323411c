"""A bound on connections, and which of them is closed for a new one: the one that waited longest for its caller."""

import heapq
from typing import NamedTuple, Protocol

SCAN_RATIO = 16
"""A scan finds a sixteenth of the connections, so that a flood of new ones costs each a bounded part of a scan."""
MIN_FOUND = 16
SCAN_SECONDS = 1.0
"""How long the findings of a scan are used."""
PAUSE_SECONDS = 0.1
"""After a scan that found none to close: when all connections are busy, each new one would cost a scan."""


class Waiting(NamedTuple):
    """What a connection waits for; the smallest gives way first."""

    rank: int
    """0: the rest of a head, or of a TLS handshake, that is late. 1: a first request. 2: a further one."""
    since: float
    """In the event loop's time."""


class Held(Protocol):
    """A caller's connection."""

    def waiting(self, now: float) -> Waiting | None:
        """Return what it waits for; ``None`` while it has a request, or may not be closed yet."""

    def evict(self) -> bool:
        """Close it, and release it from its quotas at once; return whether that was done."""


class ConnectionQuota:
    """Counts connections.

    Args:
        limit: How many there may be.
    """

    __slots__ = ("_found", "_scan_after", "_scanned_at", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held: dict[Held, None] = {}
        self._found: list[tuple[Waiting, Held]] = []
        """What the last scan found, the first to give way at the end."""
        self._scanned_at = self._scan_after = float("-inf")

    @property
    def is_full(self) -> bool:
        """Whether there may be no further one."""
        return len(self.held) >= self.limit

    def close_one(self, now: float) -> bool:
        """Close the connection that has waited longest for its caller; return whether there was one."""
        if now - self._scanned_at > SCAN_SECONDS:
            self._found.clear()
        if self._close_found(now):
            return True
        if now < self._scan_after:
            return False
        self._scan(now)
        if self._close_found(now):
            return True
        self._scan_after = now + PAUSE_SECONDS
        return False

    def _close_found(self, now: float) -> bool:
        while self._found:
            waiting, held = self._found.pop()
            if held in self.held and held.waiting(now) == waiting and held.evict():
                return True
        return False

    def _scan(self, now: float) -> None:
        waiting = (
            (found, number, held)
            for number, held in enumerate(self.held)  # the oldest first, as the clock is coarse
            if (found := held.waiting(now)) is not None
        )
        first = heapq.nsmallest(max(MIN_FOUND, len(self.held) // SCAN_RATIO), waiting)
        self._found = [(found, held) for found, _, held in reversed(first)]
        self._scanned_at = now
