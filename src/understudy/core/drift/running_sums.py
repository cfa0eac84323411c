"""What windows of a subject add up to over any span of them, as prefix sums.

Before that the windows are deseasonalised by the hour of the week (:mod:`understudy.core.drift.seasonality`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from understudy.core.drift.baseline import Baseline, CategoricalBaseline, FloatArray, NumericBaseline
from understudy.core.drift.evidence import (
    Clustered,
    Effect,
    Measure,
    Spans,
    clustered,
    design_effect,
)
from understudy.core.drift.measures import (
    Grid,
    Rules,
    deviation_of,
    mean_effect,
    normalised_shares,
    nulls_effect,
    psi_effect,
    shares_effect,
    wasserstein_effect,
)
from understudy.core.drift.prefix_sums import prefix_sums, sums_over
from understudy.core.drift.seasonality import seasons_of
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.window import MICRO

Effects = dict[Measure, Effect]

RARE_RATIO = 0.01
"""Categories with a smaller share of the baseline count as "all others"."""

_NO_ROWS = (0,) * ANALYSIS_BUCKETS


@dataclass(frozen=True, slots=True)
class NullSums:
    """Rows without a value."""

    rows: FloatArray
    """Running sums by bucket, nulls included, as all arrays here."""
    nulls: FloatArray
    inflated_rows: FloatArray
    expected_ratio: float
    own: float

    @classmethod
    def of(cls, windows: Sequence[SubjectWindow], baseline: Baseline, first: int) -> Self | None:
        """Return the sums from the window ``first`` on; ``None`` when nulls were not counted, then or now."""
        if baseline.null_ratio is None or not any(len(window.bucket_nulls) for window in windows):
            return None
        rows, nulls = _rows(windows), _nulls(windows)
        total = rows.sum(axis=1)
        seasons = seasons_of(_starts(windows), total, _shares(nulls.sum(axis=1, keepdims=True), total))
        return cls(
            rows=prefix_sums(rows[first:]),
            nulls=prefix_sums((nulls - rows * seasons.offsets)[first:]),
            inflated_rows=prefix_sums((total * seasons.inflation)[first:]),
            expected_ratio=baseline.null_ratio,
            own=_own(baseline),
        )

    def effects(self, spans: Spans, rules: Rules) -> Effects:
        """Return the difference of the null shares."""
        found = clustered(sums_over(self.rows, spans), sums_over(self.nulls, spans))
        inflation = _inflation(self.inflated_rows, spans, found.rows)
        return {Measure.NULLS: nulls_effect(found, self.expected_ratio, inflation, self.own, rules)}


@dataclass(frozen=True, slots=True)
class NumericSums:
    """A numeric subject; values are told from the baseline's mean, in its standard deviations."""

    rows: FloatArray
    """Running sums by bucket, nulls left out, as all arrays here."""
    sums: FloatArray
    plain_sums: FloatArray
    """Not by bucket, and with the season in them."""
    squares: FloatArray
    counts: FloatArray
    """By bin of the grid."""
    inflated_rows: FloatArray
    grid: Grid | None
    own: float
    nulls: NullSums | None

    @classmethod
    def of(cls, windows: Sequence[SubjectWindow], baseline: NumericBaseline, first: int) -> Self:
        """Return the sums from the window ``first`` on; those before it tell only about the season."""
        grid, deviation = Grid.of(baseline), deviation_of(baseline)
        rows = _rows(windows) - _nulls(windows)
        total = rows.sum(axis=1)
        raw_sums = np.array([window.bucket_sums for window in windows], dtype=np.float64)
        sums = (raw_sums / MICRO - rows * baseline.mean) / deviation
        squares = np.array([_centred_squares(window, baseline.mean) for window in windows]) / deviation**2
        counts = np.array([grid.counts_of(window.cells) if grid else [] for window in windows])
        statistics = np.column_stack([sums.sum(axis=1), counts])
        seasons = seasons_of(_starts(windows), total, _shares(statistics, total))
        return cls(
            rows=prefix_sums(rows[first:]),
            sums=prefix_sums((sums - rows * seasons.offsets[:, :1])[first:]),
            plain_sums=prefix_sums(sums.sum(axis=1)[first:]),
            squares=prefix_sums(squares[first:]),
            counts=prefix_sums((counts - total[:, None] * seasons.offsets[:, 1:])[first:]),
            inflated_rows=prefix_sums((total * seasons.inflation)[first:]),
            grid=grid,
            own=_own(baseline),
            nulls=NullSums.of(windows, baseline, first),
        )

    def effects(self, spans: Spans, rules: Rules) -> Effects:
        """Return all measures that the baseline allows."""
        found = clustered(sums_over(self.rows, spans), sums_over(self.sums, spans))
        inflation = _inflation(self.inflated_rows, spans, found.rows)
        # A single value has variance 1 in the baseline's unit; rows that happen to be alike must not hide that.
        variance = np.maximum(found.variance, _mean(1.0, found.rows)) * inflation + self.own
        against = found._replace(variance=variance)
        effects = {Measure.MEAN: mean_effect(against, rules)}
        if self.grid is not None:
            clustering = design_effect(found, self._value_variance(spans, found.rows)) * inflation
            per_row = _mean(clustering, found.rows) + self.own
            shares = self.shares(spans)
            bins, expected = self.grid.psi_bins(shares), self.grid.psi_bins(self.grid.shares)
            effects[Measure.WASSERSTEIN] = wasserstein_effect(self.grid, shares, per_row, against, rules)
            effects[Measure.PSI] = psi_effect(bins, expected, per_row, found, rules)
        return effects if self.nulls is None else effects | self.nulls.effects(spans, rules)

    def shares(self, spans: Spans) -> FloatArray:
        """Return the share of each bin of the grid."""
        return normalised_shares(sums_over(self.counts, spans))

    def _value_variance(self, spans: Spans, rows: FloatArray) -> FloatArray:
        mean = _mean(sums_over(self.plain_sums, spans), rows)
        return np.maximum(_mean(sums_over(self.squares, spans), rows) - mean * mean, 0.0)


@dataclass(frozen=True, slots=True)
class CategoricalSums:
    """A categorical subject; the last category is all others."""

    names: tuple[str, ...]
    rows: FloatArray
    """Running sums by bucket, nulls left out."""
    by_bucket: tuple[FloatArray, ...]
    """For each category its running sums by bucket, with the season in them."""
    counts: FloatArray
    inflated_rows: FloatArray
    expected: FloatArray
    own: float
    nulls: NullSums | None

    @classmethod
    def of(cls, windows: Sequence[SubjectWindow], baseline: CategoricalBaseline, first: int) -> Self:
        """Return the sums from the window ``first`` on; those before it tell only about the season."""
        names = tuple(name for name, share in baseline.shares.items() if share >= RARE_RATIO)
        rows = _rows(windows) - _nulls(windows)
        total = rows.sum(axis=1)
        named = [np.array([window.categories.get(name, _NO_ROWS) for window in windows]) for name in names]
        categories = [*named, rows - np.sum(named, axis=0)]
        counts = np.column_stack([category.sum(axis=1) for category in categories])
        seasons = seasons_of(_starts(windows), total, _shares(counts, total))
        shares = [baseline.shares[name] for name in names]
        return cls(
            names=names,
            rows=prefix_sums(rows[first:]),
            by_bucket=tuple(prefix_sums(category[first:]) for category in categories),
            counts=prefix_sums((counts - total[:, None] * seasons.offsets)[first:]),
            inflated_rows=prefix_sums((total * seasons.inflation)[first:]),
            expected=np.array([*shares, max(0.0, 1 - sum(shares))]),
            own=_own(baseline),
            nulls=NullSums.of(windows, baseline, first),
        )

    def effects(self, spans: Spans, rules: Rules) -> Effects:
        """Return all measures that the baseline allows."""
        rows = sums_over(self.rows, spans)
        each = [clustered(rows, sums_over(category, spans)) for category in self.by_bucket]
        inflation, shares = _inflation(self.inflated_rows, spans, rows.sum(axis=-1)), self.shares(spans)
        if Measure.SHARES in rules.limits:
            varied = [
                one._replace(variance=one.variance * inflation + p * (1 - p) * self.own)
                for one, p in zip(each, self.expected.tolist(), strict=True)
            ]
            per_row = _mean(inflation, rows.sum(axis=-1)) + self.own
            effects = {Measure.SHARES: shares_effect(shares, self.expected, varied, per_row, rules)}
        else:
            found, clustering = _together(each)
            per_row = _mean(clustering * inflation, found.rows) + self.own
            effects = {Measure.PSI: psi_effect(shares, self.expected, per_row, found, rules)}
        return effects if self.nulls is None else effects | self.nulls.effects(spans, rules)

    def shares(self, spans: Spans) -> FloatArray:
        """Return the share of each category."""
        return normalised_shares(sums_over(self.counts, spans))


def _together(each: Sequence[Clustered]) -> tuple[Clustered, FloatArray]:
    """Return rows and buckets, and the design effect of all categories together.

    Source:
        Rao and Scott, "The analysis of categorical data from complex sample surveys", JASA 76 (1981): the first-order
        correction divides by the mean of the categories' design effects.
    """
    together = each[0]._replace(variance=np.sum([one.variance for one in each], axis=0))
    return together, design_effect(together, np.sum([one.mean * (1 - one.mean) for one in each], axis=0))


def sums_of(windows: Sequence[SubjectWindow], baseline: Baseline, first: int) -> NumericSums | CategoricalSums:
    """Return the sums from the window ``first`` on; those before it tell only about the season."""
    if isinstance(baseline, CategoricalBaseline):
        return CategoricalSums.of(windows, baseline, first)
    return NumericSums.of(windows, baseline, first)


def _own(baseline: Baseline) -> float:
    """Return one over the rows that a baseline rests on, which is its own part of the variance; 0 when it is exact."""
    return 1 / baseline.rows if baseline.rows else 0.0


def _starts(windows: Sequence[SubjectWindow]) -> FloatArray:
    return np.array([window.start_seconds for window in windows])


def _rows(windows: Sequence[SubjectWindow]) -> FloatArray:
    return np.array([window.bucket_rows for window in windows], dtype=np.float64)


def _nulls(windows: Sequence[SubjectWindow]) -> FloatArray:
    return np.array([window.bucket_nulls or _NO_ROWS for window in windows], dtype=np.float64)


def _centred_squares(window: SubjectWindow, mean: float) -> float:
    """Return the sum of the squared distances from the baseline's mean."""
    rows = sum(window.bucket_rows) - sum(window.bucket_nulls)
    return (window.square_sum - 2 * mean * sum(window.bucket_sums)) / MICRO + rows * mean * mean


def _inflation(inflated_rows: FloatArray, spans: Spans, rows: FloatArray) -> FloatArray:
    """Return what comparing with earlier weeks costs, as a factor of the variance; at least 1."""
    return np.maximum(_mean(sums_over(inflated_rows, spans), rows), 1.0)


def _shares(counts: FloatArray, total: FloatArray) -> FloatArray:
    return np.divide(counts, total[:, None], out=np.zeros_like(counts), where=total[:, None] > 0)


def _mean(total: FloatArray | float, rows: FloatArray) -> FloatArray:
    """Return a total per row, or as if there was one row where there is none."""
    return np.asarray(total / np.maximum(rows, 1.0))
