"""Groups what comes one by one within a turn of the event loop: all of it is given on together when the turn ends."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

T = TypeVar("T")


class TurnGroup(Generic[T]):
    """What has come in this turn.

    Args:
        take: Takes all of it, in its order and in no call's trace; what comes meanwhile is for the next turn.
    """

    __slots__ = ("_come", "_take", "add")

    def __init__(self, take: Callable[[list[T]], None]) -> None:
        self._take = take
        self._come: list[T] = []
        self.add: Callable[[T], None] = self._add_first
        """Adds one. Behind the first of a turn it is the list's own ``append``: look it up for each."""

    def __len__(self) -> int:
        return len(self._come)

    def extend(self, several: list[T]) -> None:
        """Add several."""
        if several:
            self.add(several[0])
            self._come += several[1:]

    def take_by(self, take: Callable[[list[T]], None]) -> None:
        """Give what comes to another taker from now on."""
        self._take = take

    def end(self) -> None:
        """Give on what has come, if anything has."""
        come, self._come, self.add = self._come, [], self._add_first
        if come:
            self._take(come)

    def _add_first(self, one: T) -> None:
        asyncio.get_running_loop().call_soon(self.end, context=Context())
        self._come.append(one)
        self.add = self._come.append
