"""The difference of quantiles between two arms, with an interval that knows that values of one entity are alike."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special
from understudy.core.statistics.difference import ArmEntities, Scale, effective_entities, linearised
from understudy.core.statistics.sample_size import ALPHA, FloatArray

PROBABILITIES = (0.5, 0.9, 0.95, 0.99)
MIN_EFFECTIVE = 100.0
"""Effective entities of an arm, below which nothing is said; as in the comparison of means."""
MIN_BEYOND = 5.0
"""The share beyond a quantile times the effective entities, below which it has no interval: p99 wants 500 of them. It
counts entities and not their values, because a bar that depends on the values picks the samples whose slow entities are
missing: with at least ten independent values beyond p99 a limit of 600 entities of which 2 % are slow was wrong in 8 %,
and is in 5 % at any 500 (tests/stats/test_quantile_bars.py)."""


class ArmValues(NamedTuple):
    """One arm's values, such as the latencies of calls; all arrays have the shape ``(values,)``."""

    values: FloatArray
    entities: NDArray[np.int64]
    """Whose it is: a number from 0 on for each entity, without gaps."""
    weights: FloatArray
    """How much it counts; above 0."""


class QuantileDifference(NamedTuple):
    """One quantile of B less that of A."""

    probability: float
    value_a: float
    value_b: float
    difference: float
    low: float | None
    """For one look; ``None``, as ``high``, where an arm has too few entities or values beyond the quantile."""
    high: float | None


class _Estimate(NamedTuple):
    """A quantile of one arm and its limits."""

    value: float
    low: float | None
    high: float | None


def compare_quantiles(
    a: ArmValues, b: ArmValues, probabilities: Sequence[float] = PROBABILITIES, alpha: float = ALPHA
) -> list[QuantileDifference]:
    """Return how far the quantiles of B are from those of A; nothing while an arm has too few effective entities.

    Source:
        Deng, Knoblich & Lu, "Applying the delta method in metric analytics", KDD 2018, §4: the share of values below a
        quantile is a ratio metric of the entities, whose standard error the delta method gives, and the limits of that
        share are read off the values (the outer confidence interval; Woodruff, "Confidence intervals for medians and
        other position measures", Journal of the American Statistical Association 47 (1952)). It needs no density.
        Beyond a tail's quantile few entities make up most of that error, which is then known no better than from a
        sample of few: its degrees of freedom follow from the kurtosis of what entities add (Satterthwaite, "An
        approximate distribution of estimates of variance components", Biometrics 2 (1946)). The limits of the arms are
        put together as Zou & Donner, "Construction of confidence limits about effect measures", Statistics in Medicine
        27 (2008), do, because those of a tail are not symmetric.
    """
    arms = [_Sorted.of(arm) for arm in (a, b)]
    if min(arm.effective for arm in arms) < MIN_EFFECTIVE:
        return []
    return [
        _difference(probability, *(arm.estimate(probability, alpha) for arm in arms)) for probability in probabilities
    ]


class _Sorted(NamedTuple):
    """An arm's values in order, with the share of the weight up to each."""

    values: FloatArray
    shares: FloatArray
    entities: NDArray[np.int64]
    weights: FloatArray
    per_entity: FloatArray
    effective: float

    @classmethod
    def of(cls, arm: ArmValues) -> "_Sorted":
        order = np.argsort(arm.values, kind="stable")
        values, entities, weights = arm.values[order], arm.entities[order], arm.weights[order]
        per_entity = np.bincount(entities, weights).astype(np.float64)
        shares = np.cumsum(weights) / weights.sum() if len(weights) else weights
        return cls(values, shares, entities, weights, per_entity, effective_entities(per_entity))

    def estimate(self, probability: float, alpha: float) -> _Estimate:
        """Return a quantile with limits that are each wrong with a chance of half of alpha."""
        value, rare = self.at(probability), min(probability, 1 - probability)
        if self.effective * rare < MIN_BEYOND:
            return _Estimate(value, None, None)
        error, freedom = self._scale(self._below(value, probability))
        reach = float(special.stdtrit(freedom, 1 - alpha / 2)) * error
        if not reach < rare:
            return _Estimate(value, None, None)
        return _Estimate(value, self.at(probability - reach), self.at(probability + reach))

    def _below(self, value: float, probability: float) -> int:
        """Return how many values are below this one; those equal to it count if that is nearer to the probability."""
        without, with_equal = (int(np.searchsorted(self.values, value, side=side)) for side in ("left", "right"))
        share_without = self.shares[without - 1] if without else 0.0
        is_nearer = self.shares[with_equal - 1] - probability <= probability - share_without
        return with_equal if is_nearer else without

    def _scale(self, below: int) -> Scale:
        """Return the standard error of the share of the first so many values, and how well that is known."""
        numerator = np.bincount(self.entities[:below], self.weights[:below], len(self.per_entity))
        _, own = linearised(ArmEntities(numerator.astype(np.float64), self.per_entity))
        squares = (own - own.mean()) ** 2
        variance = float(squares.sum()) / (len(own) - 1)
        if not variance:
            return Scale(0.0, self.effective - 1)
        # A share of one half of equal entities has a kurtosis of 1, and no limit to its degrees of freedom.
        kurtosis = float((squares**2).mean() / squares.mean() ** 2)
        freedom = 2 * len(own) / max(kurtosis - 1, 2 / len(own))
        return Scale(sqrt(variance / len(own)), min(self.effective - 1, freedom))

    def at(self, share: float) -> float:
        """Return the smallest value that has at least this share of the weight up to it."""
        place = int(np.searchsorted(self.shares, share * (1 - _ROUNDING)))
        return float(self.values[min(place, len(self.values) - 1)])


_ROUNDING = 1e-12
"""Of a sum of weights."""


def _difference(probability: float, a: _Estimate, b: _Estimate) -> QuantileDifference:
    difference = b.value - a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return QuantileDifference(probability, a.value, b.value, difference, None, None)
    low = difference - sqrt((b.value - b.low) ** 2 + (a.high - a.value) ** 2)
    high = difference + sqrt((b.high - b.value) ** 2 + (a.value - a.low) ** 2)
    return QuantileDifference(probability, a.value, b.value, difference, low, high)
