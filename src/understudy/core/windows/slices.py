"""What a window counts of each slice: calls, errors, slow answers and latencies, by a few groups of entities.

A slice is what calls have in common, see :mod:`understudy.core.prediction_log.call_slices`: a category, or a value of a
feature. Entities fall into sixteen groups of analysis buckets, so that a difference can be asked whether other entities
show it too.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.call_slices import MAX_SLICES, OTHER, Slice

SLICE_BUCKETS = 16
"""A window has a row of numbers for each group of a slice's entities with calls: of 64 it would have thousands."""
MAX_VALUES = 64
"""Values of a feature that are told apart in a window; calls with others count as :data:`OTHER`."""
MAX_CELLS = MAX_SLICES * (MAX_VALUES + 1)
"""Slices of a window. A spool that was written by something else may have more; these count nowhere."""

SliceCounts = Mapping[Slice, NDArray[np.int64]]
"""Of each slice an array of shape (16, 4): a row for each group of entities, the columns of :class:`SliceColumn`."""


class SliceColumn(IntEnum):
    """What is counted of the judged calls of a slice."""

    CALLS = 0
    ERRORS = 1
    SLOW = 2
    """Answers slower than the rollout's threshold, the challenger's than 1.2 times that."""
    LOG_LATENCY = 3
    """Of the answers, in millionths of the logarithm of microseconds."""


class SlicedCalls(NamedTuple):
    """Calls with their slices."""

    sets: Sequence[tuple[Slice, ...]]
    set_of: NDArray[np.intp]
    """Of each call a place in ``sets``, shape ``(n,)``."""


class CallSums(NamedTuple):
    """What calls add to their slices, shape ``(n,)`` each."""

    bucket: NDArray[np.intp]
    """The group of the entity."""
    is_failed: NDArray[np.bool_]
    is_slow: NDArray[np.bool_]
    log_latency: NDArray[np.int64]
    """In millionths; 0 where there is no answer."""


def no_counts() -> NDArray[np.int64]:
    """Return the counts of a slice without calls."""
    return np.zeros((SLICE_BUCKETS, len(SliceColumn)), np.int64)


class SliceTally:
    """The slices of one window while a batch of calls is added to it; what it starts from is never changed.

    Args:
        counts: What is committed.
    """

    def __init__(self, counts: SliceCounts) -> None:
        self._counts = {one: counted.copy() for one, counted in counts.items()}
        self._values: dict[str, int] = {}
        """How many values of each feature are told apart."""
        for one in counts:
            self._values[one.feature] = self._values.get(one.feature, 0) + (one.value != OTHER)

    def counts(self) -> SliceCounts:
        """Return what was counted so far."""
        return self._counts

    def add(self, calls: SlicedCalls, sums: CallSums) -> None:
        """Count calls, each once in each of its slices."""
        cells: dict[Slice, int] = {}
        used = np.unique(calls.set_of)
        places = np.full((used.size, MAX_SLICES), -1, np.intp)
        for number, set_number in enumerate(used.tolist()):
            for slot, one in enumerate(calls.sets[set_number]):
                known = self._known(one)
                if known is not None:
                    places[number, slot] = cells.setdefault(known, len(cells))
        if not cells:
            return
        of_call = places[np.searchsorted(used, calls.set_of)]
        call, place = np.nonzero(of_call >= 0)
        row = of_call[call, place] * SLICE_BUCKETS + sums.bucket[call]
        added = np.zeros((len(cells) * SLICE_BUCKETS, len(SliceColumn)), np.int64)
        np.add.at(added[:, SliceColumn.CALLS], row, 1)
        np.add.at(added[:, SliceColumn.ERRORS], row, sums.is_failed[call])
        np.add.at(added[:, SliceColumn.SLOW], row, sums.is_slow[call])
        np.add.at(added[:, SliceColumn.LOG_LATENCY], row, sums.log_latency[call])
        for one, counted in zip(cells, added.reshape(len(cells), SLICE_BUCKETS, -1), strict=True):
            self._counts[one] += counted

    def _known(self, one: Slice) -> Slice | None:
        """Return the slice that calls of this one count in, and begin with it; ``None`` where there is no room."""
        if one in self._counts:
            return one
        if one.value != OTHER and self._values.get(one.feature, 0) >= MAX_VALUES:
            return self._known(Slice(one.feature, OTHER))
        if len(self._counts) >= MAX_CELLS:
            return None
        self._values[one.feature] = self._values.get(one.feature, 0) + (one.value != OTHER)
        self._counts[one] = no_counts()
        return one


def slices_to_rows(counts: SliceCounts) -> list[list[Any]]:
    """Return a list for JSON: of each slice its feature, its value, and ``bucket, calls, errors, …`` of each group."""
    rows: list[list[Any]] = []
    for one in sorted(counts):
        filled = np.flatnonzero(counts[one][:, SliceColumn.CALLS])
        if filled.size:
            rows.append([*one, *np.column_stack((filled, counts[one][filled])).ravel().tolist()])
    return rows


def slices_from_rows(rows: Sequence[Sequence[Any]], max_log_latency: int) -> SliceCounts:
    """Return what :func:`slices_to_rows` wrote.

    Args:
        rows: As they are stored, by any login of a proxy.
        max_log_latency: The most that the latency of one call adds.

    Raises:
        ValueError: No calls can have these counts.
    """
    if not rows:
        return {}
    if len(rows) > MAX_CELLS or set(map(type, chain.from_iterable(row[:2] for row in rows))) != {str}:
        raise ValueError("the slices are none, or too many")
    width = 1 + len(SliceColumn)
    numbers = [row[2:] for row in rows]
    flat = list(chain.from_iterable(numbers))
    if any(len(own) % width for own in numbers) or set(map(type, flat)) - {int}:
        raise ValueError("a slice has something else than counts")
    table = np.array(flat, np.int64).reshape(-1, width)
    if table.min(initial=0) < 0 or table[:, 0].max(initial=0) >= SLICE_BUCKETS:
        raise ValueError("a slice's counts are out of range")
    if (table[:, 1 + SliceColumn.LOG_LATENCY] > table[:, 1 + SliceColumn.CALLS] * float(max_log_latency)).any():
        raise ValueError("a slice's latencies are out of range for its calls")
    counted = np.zeros((len(rows), SLICE_BUCKETS, len(SliceColumn)), np.int64)
    counted[np.repeat(np.arange(len(rows)), [len(own) // width for own in numbers]), table[:, 0]] = table[:, 1:]
    return {Slice(row[0], row[1]): own for row, own in zip(rows, counted, strict=True)}
