"""Refused connections that are open until their callers have read why."""

from typing import Protocol


class Refused(Protocol):
    """A refused connection."""

    def end(self) -> None:
        """Close it, and take it out of what lingers."""


class Lingering:
    """The refused connections that are open.

    Args:
        limit: How many there may be; a further one ends the oldest.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._refused: dict[Refused, None] = {}

    def add(self, refused: Refused) -> None:
        """Add one, and end the oldest if there are too many."""
        self._refused[refused] = None
        if len(self._refused) > self._limit:
            next(iter(self._refused)).end()

    def discard(self, refused: Refused) -> None:
        """Take one out, if it is there."""
        self._refused.pop(refused, None)

    def __len__(self) -> int:
        return len(self._refused)
