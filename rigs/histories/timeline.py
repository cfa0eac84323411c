"""Real time against a total order: where operations may stand among the changes of one thing.

The audit gives every change of a policy its place, so the order that linearizability asks for need not be searched for:
it is there, and has only to be judged. An operation that changed something stands at its own row, a read at the
generation that it returned; what neither changed nor named a generation may stand anywhere between what had returned
before it was sent and what was sent after it returned.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from rigs.histories.record import Record


class Placed(NamedTuple):
    """An operation at its place.

    Args:
        record: Which.
        first: The first change that it made, or what it read.
        last: The last change that it made, or what it read.
        writes: Whether it made them.
    """

    record: Record
    first: int
    last: int
    writes: bool

    @property
    def latest_before(self) -> int:
        """The latest place of an operation that came before this one."""
        return self.first - 1 if self.writes else self.first


class Misplaced(NamedTuple):
    """An operation that stands before one that had returned before it was sent."""

    placed: Placed
    floor: int
    """Where that one stands."""
    earlier: Record


class Timeline:
    """Operations at their places in one total order.

    Args:
        placed: Those whose place is known.
        began_at: When the transaction of each place's change began: nothing that had returned by then saw it.
    """

    def __init__(self, placed: Sequence[Placed], began_at: Sequence[tuple[float, int]] = ()) -> None:
        self._placed = sorted(placed, key=lambda one: one.record.invoked)
        self._returned = sorted(placed, key=lambda one: one.record.returned)
        self._return_times = [one.record.returned for one in self._returned]
        self._floors = list(accumulate(self._returned, _later))
        limits = sorted(
            [(one.record.invoked, one.latest_before) for one in placed] + [(at, place - 1) for at, place in began_at]
        )
        self._limit_times = [at for at, _ in limits]
        self._limits = list(accumulate((place for _, place in reversed(limits)), min))[::-1]

    def misplaced(self) -> Iterator[Misplaced]:
        """Yield the operations whose place contradicts real time: stale reads and changes that came too early."""
        for one in self._placed:
            earlier = self._before(one.record)
            if earlier is not None and earlier.last > one.latest_before:
                yield Misplaced(one, earlier.last, earlier.record)

    def interval(self, record: Record, last: int) -> tuple[int, int]:
        """Return the first and the last place at which an operation without a known one may stand."""
        earlier = self._before(record)
        at = bisect_right(self._limit_times, record.returned)
        limit = self._limits[at] if at < len(self._limits) else last
        return (1 if earlier is None else earlier.last), min(limit, last)

    def unplaceable(
        self, records: Sequence[Record], last: int, fits: Callable[[Record, int], bool]
    ) -> Iterator[tuple[Record, int, int]]:
        """Yield the operations that fit nowhere, with the interval in which they would have to.

        Each takes the first place that fits: one further back would only leave less room for those that follow.
        """
        taken: list[tuple[float, int]] = []
        for record in sorted(records, key=lambda one: one.invoked):
            low, high = self.interval(record, last)
            low = max([low, *(place for returned, place in taken if returned < record.invoked)])
            found = next((place for place in range(low, high + 1) if fits(record, place)), None)
            if found is None:
                yield record, low, high
            else:
                taken.append((record.returned, found))

    def _before(self, record: Record) -> Placed | None:
        """Return the one furthest on of all that had returned before an operation was sent."""
        count = bisect_left(self._return_times, record.invoked)
        return self._floors[count - 1] if count else None


def _later(one: Placed, other: Placed) -> Placed:
    return other if other.last > one.last else one


def never_returned(record: Record) -> bool:
    """Whether an operation may be carried out at any later time."""
    return record.returned == inf
