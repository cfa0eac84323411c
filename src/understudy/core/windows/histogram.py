"""A distribution in cells that grow with the value: added to and merged without loss, quantiles to 1 %.

A cell holds the values between two neighbouring powers of :data:`GAMMA`. Negative values mirror the positive ones and
what is next to zero has cell 0, so no range is ever declared. Only cells that hold something are kept, and merging is
adding integers: whatever the order, the result is the same to the last bit.

Source:
    Masson, Rim and Lee, "DDSketch", VLDB 2019: a cell's middle is off by at most (GAMMA - 1) / (GAMMA + 1) = 0.99 %.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

GAMMA = 1.02
"""Statistics page, §2: any quantile within 2 %."""
MIN_SIZE = 1e-9
"""What is nearer to zero than this counts as zero."""
MAX_SIZE = 1e300
"""What is further from zero than this counts as this, so that every cell's middle is a finite number."""

_LOG_GAMMA = log(GAMMA)
_PER_LOG = 1 / _LOG_GAMMA
_OFFSET = 1 - log(MIN_SIZE) / _LOG_GAMMA
"""Puts the cell of :data:`MIN_SIZE` at 1."""
_NEAR_BORDER = 1e-9
"""Of a cell: forty times what four units in the last place of the greatest logarithm come to."""
_MIDDLE = 2 * GAMMA / (1 + GAMMA)
"""A cell's lower edge times this is as far (relatively) from its lower edge as from its upper one."""


def cell_of(value: float) -> int:
    """Return the cell of a finite value."""
    if value >= MIN_SIZE:
        return cell_of_log(log(min(value, MAX_SIZE)))
    if value <= -MIN_SIZE:
        return -cell_of_log(log(min(-value, MAX_SIZE)))
    return 0


def cell_of_log(logarithm: float) -> int:
    """Return the cell of a value from :data:`MIN_SIZE` to :data:`MAX_SIZE` whose natural logarithm is known."""
    return int(logarithm * _PER_LOG + _OFFSET)


def cells_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return what :func:`cell_of` says of each of finite values, shape ``(n,)``, to the same cell."""
    sizes = np.minimum(np.abs(values), MAX_SIZE)
    is_far = sizes >= MIN_SIZE
    places = np.log(np.where(is_far, sizes, MIN_SIZE)) * _PER_LOG + _OFFSET
    cells = places.astype(np.int64)
    # numpy's logarithm may differ in its last bits, and then in the cell, where a border is as near as that.
    for near in np.flatnonzero(np.abs(places - np.rint(places)) < _NEAR_BORDER).tolist():
        cells[near] = cell_of_log(log(max(sizes[near], MIN_SIZE)))
    cells[~is_far] = 0
    return np.where(values < 0, -cells, cells)


def cells_of_logs(logarithms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return what :func:`cell_of_log` says of each logarithm."""
    return (logarithms * _PER_LOG + _OFFSET).astype(np.int64)


def value_of(cell: int) -> float:
    """Return the value that stands for all of a cell's: at most 1 % from any of them."""
    if cell == 0:
        return 0.0
    middle = exp((abs(cell) - _OFFSET) * _LOG_GAMMA) * _MIDDLE
    return middle if cell > 0 else -middle


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values each cell holds; cells without any are left out."""

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Iterable[float]) -> "Histogram":
        """Return the histogram of finite values."""
        return cls().plus(values)

    @property
    def total(self) -> int:
        """How many values there are."""
        return sum(self.counts.values())

    def plus(self, values: Iterable[float]) -> "Histogram":
        """Return the histogram with finite values added."""
        counts = dict(self.counts)
        for value in values:
            cell = cell_of(value)
            counts[cell] = counts.get(cell, 0) + 1
        return Histogram(counts)

    def at_least(self, value: float) -> int:
        """Return how many values are ``value`` or more, where all of its cell count: those up to 2 % below it too."""
        first = cell_of(value)
        return sum(count for cell, count in self.counts.items() if cell >= first)

    def quantile(self, share_ratio: float) -> float | None:
        """Return the value that ``share_ratio`` (0 to 1) of the values do not exceed, within 1 %.

        It stands for the smallest value whose rank is at least ``share_ratio`` of the total (the first one at 0, the
        last one at 1); ``None`` of an empty histogram.
        """
        if not self.counts:
            return None
        cells = sorted(self.counts)
        rank = max(1, ceil(share_ratio * self.total))
        for cell, seen in zip(cells, accumulate(self.counts[cell] for cell in cells), strict=True):
            if seen >= rank:
                return value_of(cell)
        return value_of(cells[-1])


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Return all values of several histograms in one."""
    counts: dict[int, int] = {}
    for histogram in histograms:
        for cell, count in histogram.counts.items():
            counts[cell] = counts.get(cell, 0) + count
    return Histogram(counts)
