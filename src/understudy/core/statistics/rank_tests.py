"""Ranks: how alike two scores order the same calls, and seed 003's comparison of two arms.

The latter is reported beside the verdict, never the verdict. Mann-Whitney asks whether a value of B tends to exceed one
of A, not whether B's mean is higher: the two may disagree. It takes its values as independent, so they must be one per
entity: on requests, which are alike within an entity, 43 % of the comparisons of two equal models come out below 5 % in
one look, and further looks add to it (statistics §1).
"""

from math import erfc, sqrt
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.sample_size import FloatArray

MIN_VALUES = 30
"""Of each arm, below which nothing is said. Source: seed 003, ``analyze``."""


_ROUNDING = 1e-12
"""Standard deviation over mean of values that are all the same: the mean of 320 times 0.8438902 is not quite that."""


class RankComparison(NamedTuple):
    """Two samples of one value per entity; B against A."""

    mean_a: float
    mean_b: float
    sd_a: float
    sd_b: float
    p_value: float
    """Mann-Whitney, two-sided; it holds for one look."""
    win_ratio_b: float
    """Share of all pairs (0-1) in which B's value is above A's; a tie counts half."""
    cohens_d: float | None
    """``mean_b - mean_a`` in pooled standard deviations; ``None`` when neither arm varies."""


def compare_ranks(a: FloatArray, b: FloatArray) -> RankComparison | None:
    """Return the comparison; ``None`` while an arm has fewer than :data:`MIN_VALUES`.

    Source:
        Mann & Whitney, Annals of Mathematical Statistics 18 (1947); normal approximation with corrections for ties and
        continuity as in Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods* (2014), §4.1. Cohen's d as seed
        003 has it: the pooled variance is the plain mean of both. The win rate is over all pairs and not the seed's
        first with first, second with second, which gives two equal models of five stars 0.368 (statistics §1).
    """
    if min(len(a), len(b)) < MIN_VALUES:
        return None
    wins = _wins(a, b)
    sd_a, sd_b = float(a.std(ddof=1)), float(b.std(ddof=1))
    pooled = sqrt((sd_a**2 + sd_b**2) / 2)
    mean_a, mean_b = float(a.mean()), float(b.mean())
    return RankComparison(
        mean_a,
        mean_b,
        sd_a,
        sd_b,
        _p_value(wins, a, b),
        win_ratio_b=wins / (len(a) * len(b)),
        cohens_d=(mean_b - mean_a) / pooled if pooled > _ROUNDING * max(abs(mean_a), abs(mean_b)) else None,
    )


def average_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value from 1 on; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[places]
    return ranks


def rank_correlation(a: FloatArray, b: FloatArray) -> float | None:
    """Return how alike two scores order the same things, -1 to 1; ``None`` where one of them is the same for all.

    ``a`` and ``b`` have the shape ``(things,)``. Ties share the mean of their ranks.

    Source:
        Spearman, "The proof and measurement of association between two things", American Journal of Psychology 15
        (1904).
    """
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(average_ranks(a), average_ranks(b))[0, 1])


def _wins(a: FloatArray, b: FloatArray) -> float:
    """Return the pairs in which B's value is above A's, and half of those in which they are equal: Mann-Whitney's U."""
    ordered = np.sort(a)
    below, up_to = np.searchsorted(ordered, b, "left"), np.searchsorted(ordered, b, "right")
    return float((below.sum() + up_to.sum()) / 2)


def _p_value(wins: float, a: FloatArray, b: FloatArray) -> float:
    pairs, total = len(a) * len(b), len(a) + len(b)
    _, ties = np.unique(np.concatenate([a, b]), return_counts=True)
    correction = float((ties.astype(float) ** 3 - ties).sum()) / (total * (total - 1))
    variance = pairs / 12 * (total + 1 - correction)
    if variance <= 0:
        return 1.0
    excess = max(abs(wins - pairs / 2) - 0.5, 0.0)
    return erfc(excess / sqrt(2 * variance))
