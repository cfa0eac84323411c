"""Where a numeric baseline's distribution is looked at."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from understudy.core.drift.baseline import FloatArray, NumericBaseline
from understudy.core.drift.subject_window import IntArray
from understudy.core.windows.histogram import cell_of, value_of

PSI_BINS = 10
"""A tenth of the baseline each. Source: the common definition, to which the limit of 0.2 belongs."""

_LEVELS = np.unique(np.concatenate([np.arange(1, 65) / 64, 0.5 ** np.arange(7, 17), 1 - 0.5 ** np.arange(7, 17)]))
"""Quantiles of the baseline that are edges, denser in the tails: an area is then right to a few percent."""
_JUMP_RATIO = 1 / 128
"""A cell with this share gets an edge on both sides: the distribution may jump there, as that of whole numbers does."""
_BEYOND = np.array([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
"""How far outside that range the grid goes on, in standard deviations."""
_ROUNDING = 1e-9
_MIN_DEVIATION = 1e-5
"""Stands for the standard deviation of a constant: sums of millionths tell no smaller difference apart."""


class Grid(NamedTuple):
    """A baseline's distribution in bins: each holds the cells up to its edge, the last one all beyond."""

    edges: IntArray
    """Cells of :mod:`understudy.core.windows.histogram`, increasing."""
    widths: FloatArray
    """What each edge stands for in an area, half of the way to both neighbours; in the baseline's deviations."""
    shares: FloatArray
    """The baseline's share of each bin: one more than edges."""
    psi_starts: IntArray
    """The bins at which PSI's own, wider ones begin."""

    @classmethod
    def of(cls, baseline: NumericBaseline) -> Self | None:
        """Return the grid; ``None`` of a baseline that knows no distribution."""
        counts = baseline.histogram.counts
        if not counts:
            return None
        cells = np.array(sorted(counts))
        reached = np.cumsum([counts[cell] for cell in cells.tolist()]) / sum(counts.values())
        edges = _edges(cells, reached, deviation_of(baseline))
        at_edges = np.concatenate([[0.0], reached])[np.searchsorted(cells, edges, side="right")]
        values = np.array([value_of(cell) for cell in edges.tolist()]) / deviation_of(baseline)
        return cls(
            edges=edges,
            widths=(np.diff(values, prepend=values[0]) + np.diff(values, append=values[-1])) / 2,
            shares=np.diff(at_edges, prepend=0.0, append=1.0),
            psi_starts=_psi_starts(at_edges),
        )

    def counts_of(self, cells: Mapping[int, int]) -> FloatArray:
        """Return how many values each bin holds."""
        bins = np.searchsorted(self.edges, np.fromiter(cells.keys(), dtype=np.int64, count=len(cells)))
        counts = np.fromiter(cells.values(), dtype=np.float64, count=len(cells))
        binned: FloatArray = np.bincount(bins, weights=counts, minlength=len(self.shares)).astype(np.float64)
        return binned

    def psi_bins(self, shares: FloatArray) -> FloatArray:
        """Return the shares of PSI's bins from those of the grid's, on the last axis."""
        grouped: FloatArray = np.add.reduceat(shares, self.psi_starts, axis=-1)
        return grouped


def deviation_of(baseline: NumericBaseline) -> float:
    """Return the unit in which differences of a numeric subject are told."""
    return max(baseline.standard_deviation, _MIN_DEVIATION)


def _edges(cells: IntArray, reached: FloatArray, deviation: float) -> IntArray:
    """Return quantiles of the baseline, both sides of its jumps, and some edges further out."""
    inner = cells[np.searchsorted(reached, _LEVELS - _ROUNDING)]
    jumps = cells[np.diff(reached, prepend=0.0) >= _JUMP_RATIO]
    below = value_of(int(cells[0])) - _BEYOND * deviation
    above = value_of(int(cells[-1])) + _BEYOND * deviation
    outer = [cell_of(value) for value in (*below.tolist(), *above.tolist())]
    return np.unique(np.concatenate([outer, cells[:1] - 1, inner, jumps, jumps - 1]))


def _psi_starts(at_edges: FloatArray) -> IntArray:
    """Return the bins after the edges at which a tenth of the baseline is complete.

    A value that many rows have may fill several tenths, and the last ones leave nothing for a bin of their own.
    """
    ends = np.searchsorted(at_edges, np.arange(1, PSI_BINS) / PSI_BINS - _ROUNDING)
    return np.unique(np.concatenate([[0], ends[at_edges[ends] < 1] + 1]))
