"""Measures of drift (means, null shares, Wasserstein distance, PSI) from the baseline's, each with its standard error.

All arrays have the shape of the spans that are looked at; shares have one more axis, the bins or categories.
"""

from collections.abc import Mapping, Sequence
from math import pi, sqrt
from typing import NamedTuple, Self

import numpy as np

from understudy.core.drift.baseline import FloatArray, NumericBaseline
from understudy.core.drift.evidence import Clustered, Effect, Measure
from understudy.core.drift.subject_window import IntArray
from understudy.core.windows.histogram import cell_of, value_of

MIN_RATIO = 1e-4
"""The share that PSI gives a bin that the baseline does not have, as the logarithm of 0 is none."""

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


class Rules(NamedTuple):
    """What is too far, and what an error may be estimated from."""

    limits: Mapping[Measure, float]
    minimum_rows: int
    minimum_buckets: int

    def effect(self, measure: Measure, found: Clustered, distance: FloatArray) -> Effect:
        """Return the effect of a distance, whose variance is that of ``found``; its mean says where to."""
        return Effect(
            distance=np.maximum(distance, 0.0),
            shift=found.mean,
            excesses=(distance - self.limits[measure],),
            error=np.sqrt(found.variance),
            buckets=found.buckets,
            limit=self.limits[measure],
            is_usable=(found.rows >= self.minimum_rows) & (found.buckets >= self.minimum_buckets),
        )

    def two_sided(self, measure: Measure, found: Clustered) -> Effect:
        """Return the effect of a signed difference, looked for in both directions."""
        effect = self.effect(measure, found, np.abs(found.mean))
        return effect._replace(excesses=(found.mean - effect.limit, -found.mean - effect.limit))


def mean_effect(found: Clustered, rules: Rules) -> Effect:
    """Return the difference of means, in the baseline's standard deviations as ``found``."""
    return rules.two_sided(Measure.MEAN, found)


def nulls_effect(found: Clustered, expected_ratio: float, inflation: FloatArray, own: float, rules: Rules) -> Effect:
    """Return the difference of null shares.

    Args:
        found: The share of nulls.
        expected_ratio: The baseline's.
        inflation: What comparing with earlier weeks costs, as a factor of the variance.
        own: One over the rows that the baseline rests on.
        rules: The limit.
    """
    # At the limit itself a share varies at least this much, whatever the few nulls seen so far say.
    at_limit = min(expected_ratio + rules.limits[Measure.NULLS], 0.5)
    variance = np.maximum(found.variance, at_limit * (1 - at_limit) / np.maximum(found.rows, 1.0)) * inflation
    variance += expected_ratio * (1 - expected_ratio) * own
    return rules.two_sided(Measure.NULLS, found._replace(mean=found.mean - expected_ratio, variance=variance))


def wasserstein_effect(grid: Grid, shares: FloatArray, per_row: FloatArray, found: Clustered, rules: Rules) -> Effect:
    """Return the area between the cumulative distributions, less the area that chance alone gives.

    Its variance is at most the mean's: it is the mean of a function of the value that nowhere grows faster than the
    value itself (Kantorovich and Rubinstein), and such a function varies no more than the value does.

    Args:
        grid: Where the baseline is looked at.
        shares: Of the grid's bins.
        per_row: Variance of a share p over p (1 - p): 1 / n of independent rows.
        found: The mean, in the baseline's standard deviations.
        rules: The limit.
    """
    expected = np.cumsum(grid.shares)[:-1]
    area = np.abs(np.cumsum(shares, axis=-1)[..., :-1] - expected) @ grid.widths
    by_chance = sqrt(2 / pi) * (np.sqrt(expected * np.maximum(1 - expected, 0.0)) @ grid.widths)
    return rules.effect(Measure.WASSERSTEIN, found, area - by_chance * np.sqrt(per_row))


def psi_effect(shares: FloatArray, expected: FloatArray, per_row: FloatArray, found: Clustered, rules: Rules) -> Effect:
    """Return the population stability index (PSI) less what chance alone gives, (bins - 1) / n.

    Shares are drawn towards the baseline by half a row per bin, so that an empty bin is no infinite distance. The
    variance is the delta method's, and at least the one at the limit, 4 PSI / n to second order.

    Args:
        shares: Of the bins or categories.
        expected: The baseline's, shape ``(bins,)``.
        per_row: Variance of a share p over p (1 - p): 1 / n of independent rows.
        found: Rows and buckets; the mean gives the direction.
        rules: The limit.
    """
    wanted = normalised_shares(np.maximum(expected, MIN_RATIO))
    weight = (len(wanted) / 2 * per_row)[..., None]
    seen = (shares + weight * wanted) / (1 + weight)
    logs = np.log(seen / wanted)
    distance = ((seen - wanted) * logs).sum(axis=-1) - (len(wanted) - 1) * per_row
    slope = logs + 1 - wanted / seen
    variance = ((seen * slope**2).sum(axis=-1) - (seen * slope).sum(axis=-1) ** 2) * per_row
    floor = 4 * rules.limits[Measure.PSI] * per_row
    return rules.effect(Measure.PSI, found._replace(variance=np.maximum(variance, floor)), distance)


def shares_effect(
    shares: FloatArray, expected: FloatArray, each: Sequence[Clustered], per_row: FloatArray, rules: Rules
) -> Effect:
    """Return the difference of the share of the category that moved most; evidence is gathered of all of them.

    PSI hardly sees a class that goes from 30 to 25 %: 0.01 of the 0.2 that is its limit, for a sixth of its rows.

    Args:
        shares: Of the categories, on the last axis.
        expected: The baseline's, shape ``(categories,)``.
        each: Each category's share over rows that come in clusters, with the variance of its difference.
        per_row: Variance of a share p over p (1 - p) where rows are independent.
        rules: The limit.
    """
    limit = rules.limits[Measure.SHARES]
    # At the limit itself a share varies at least this much, whatever the few rows seen so far say.
    at_limit = expected + np.clip(0.5 - expected, -limit, limit)
    variances = np.stack([one.variance for one in each], axis=-1)
    variances = np.maximum(variances, at_limit * (1 - at_limit) * per_row[..., None])
    moved = shares - expected
    most = np.abs(moved).argmax(axis=-1)[..., None]
    shift = np.take_along_axis(moved, most, axis=-1)[..., 0]
    # One error for all of them, the largest: the evidence of a category that varies less is only smaller for it.
    found = each[0]._replace(mean=shift, variance=variances.max(axis=-1))
    effect = rules.effect(Measure.SHARES, found, np.abs(shift))
    sides = [side[..., place] - limit for side in (moved, -moved) for place in range(len(each))]
    return effect._replace(excesses=tuple(sides))


def normalised_shares(counts: FloatArray) -> FloatArray:
    """Return the shares that the measures compare: they add up to 1, or to 0 where nothing is counted.

    A count freed of a season may be below 0; it counts as 0.
    """
    above = np.maximum(counts, 0.0)
    return np.asarray(above / np.maximum(above.sum(axis=-1, keepdims=True), 1e-12))


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
