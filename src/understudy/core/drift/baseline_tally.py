"""Baselines of values that come in parts and are not kept: however many there are, they need the same memory."""

from collections import Counter
from collections.abc import Iterable
from math import nan

import numpy as np

from understudy.core.drift.baseline import (
    MAX_CATEGORIES,
    QUANTILES,
    CategoricalBaseline,
    FloatArray,
    NumericBaseline,
)
from understudy.core.drift.subject_window import MAX_VALUE
from understudy.core.windows.histogram import Histogram, cell_of

MAX_DISTINCT = 100_000
"""Texts that are counted apart; a column with more of them has no categories."""


class NumericTally:
    """Adds up numbers; NaN is null.

    Args:
        threshold: The score from which on a value is a positive; ``None``: a share of positives says nothing.
        most: Larger values add as much to the mean, as in the hours that are compared with the baseline: otherwise
            prices beyond a million would be a drift of a model that answers as it always did.
    """

    def __init__(self, threshold: float | None = None, most: float = MAX_VALUE) -> None:
        self._threshold = threshold
        self._most = most
        self._rows = self._nulls = self._positives = 0
        self._mean = self._squares = 0.0
        self._cells: dict[int, int] = {}

    def add(self, values: FloatArray) -> None:
        """Add numbers, shape ``(n,)``; each is finite or NaN.

        Source:
            Chan, Golub and LeVeque, "Algorithms for computing the sample variance", The American Statistician 37
            (1983): the parts' means and squares are joined without the loss that a sum of squares has.
        """
        present = values[~np.isnan(values)]
        self._nulls += values.size - present.size
        if present.size == 0:
            return
        bounded = np.clip(present, -self._most, self._most)
        mean, rows = float(bounded.mean()), self._rows + present.size
        step = mean - self._mean
        self._squares += float(np.square(bounded - mean).sum()) + step * step * self._rows * present.size / rows
        self._mean += step * present.size / rows
        self._rows = rows
        if self._threshold is not None:
            self._positives += int((present >= self._threshold).sum())
        for value, count in zip(*(part.tolist() for part in np.unique(present, return_counts=True)), strict=True):
            cell = cell_of(value)
            self._cells[cell] = self._cells.get(cell, 0) + count

    def baseline(self) -> NumericBaseline | None:
        """Return the baseline, its quantiles within 1 %; ``None`` when every value was null."""
        if not self._rows:
            return None
        histogram = Histogram(self._cells)
        return NumericBaseline(
            mean=self._mean,
            standard_deviation=(self._squares / self._rows) ** 0.5,
            rows=self._rows,
            quantiles={share: value for share in QUANTILES if (value := histogram.quantile(share)) is not None},
            histogram=histogram,
            null_ratio=self._nulls / (self._rows + self._nulls),
            positive_ratio=None if self._threshold is None else self._positives / self._rows,
        )


class CategoricalTally:
    """Counts category names; ``None`` is null."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._nulls = 0

    def add(self, values: Iterable[str | None]) -> None:
        """Add names.

        Raises:
            ValueError: There are more than :data:`MAX_DISTINCT`.
        """
        self._counts.update(self._without_nulls(values))
        if len(self._counts) > MAX_DISTINCT:
            raise ValueError(f"more than {MAX_DISTINCT:,} different texts are no categories")

    def _without_nulls(self, values: Iterable[str | None]) -> Iterable[str]:
        for value in values:
            if value is None:
                self._nulls += 1
            else:
                yield value

    def baseline(self) -> CategoricalBaseline | None:
        """Return the baseline of the most frequent names; ``None`` when every value was null."""
        rows = self._counts.total()
        if not rows:
            return None
        # Of equally frequent ones the first by name, so that the same rows in another order give the same baseline.
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return CategoricalBaseline(
            shares={name: count / rows for name, count in ordered[:MAX_CATEGORIES]},
            rows=rows,
            null_ratio=self._nulls / (rows + self._nulls),
        )


def numbers_for_tally(values: Iterable[float | None]) -> FloatArray:
    """Return numbers as the array that a :class:`NumericTally` adds to a baseline, null as NaN."""
    return np.array([nan if value is None else value for value in values], dtype=np.float64)
