"""The measures of drift: how far means, shares and distributions are from the baseline's, each with its error.

All arrays have the shape of the spans that are looked at; shares have one more axis, the bins or categories.
"""

from collections.abc import Mapping
from math import pi, sqrt
from typing import NamedTuple

import numpy as np

from understudy.core.drift.baseline import FloatArray
from understudy.core.drift.evidence import Clustered, Effect, Measure
from understudy.core.drift_grid import Grid

MIN_RATIO = 1e-4
"""The share that PSI gives a bin that the baseline does not have, as the logarithm of 0 is none."""


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
    """Return PSI less what chance alone gives, (bins - 1) / n.

    Shares are drawn towards the baseline by half a row per bin, so that an empty bin is no infinite distance. The
    variance is the delta method's, and at least the one at the limit, 4 PSI / n to second order.

    Args:
        shares: Of the bins or categories.
        expected: The baseline's, shape ``(bins,)``.
        per_row: Variance of a share p over p (1 - p): 1 / n of independent rows.
        found: Rows and buckets; the mean gives the direction.
        rules: The limit.
    """
    wanted = normalised(np.maximum(expected, MIN_RATIO))
    weight = (len(wanted) / 2 * per_row)[..., None]
    seen = (shares + weight * wanted) / (1 + weight)
    logs = np.log(seen / wanted)
    distance = ((seen - wanted) * logs).sum(axis=-1) - (len(wanted) - 1) * per_row
    slope = logs + 1 - wanted / seen
    variance = ((seen * slope**2).sum(axis=-1) - (seen * slope).sum(axis=-1) ** 2) * per_row
    floor = 4 * rules.limits[Measure.PSI] * per_row
    return rules.effect(Measure.PSI, found._replace(variance=np.maximum(variance, floor)), distance)


def normalised(counts: FloatArray) -> FloatArray:
    """Return shares that add up to 1, or 0 where there is nothing; freed of a season, a small bin may be below 0."""
    above = np.maximum(counts, 0.0)
    return np.asarray(above / np.maximum(above.sum(axis=-1, keepdims=True), 1e-12))
