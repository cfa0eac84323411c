"""Several comparisons with one control: p-values and intervals that hold for all of them together."""

from collections.abc import Sequence
from math import exp, sqrt
from typing import NamedTuple

from understudy.core.statistics.difference import ROUNDING, Difference
from understudy.core.statistics.sample_size import ALPHA, always_valid_boundary, interval_mixture


class Comparison(NamedTuple):
    """One of several comparisons with the same control; all figures hold however often one looks."""

    low: float
    """The intervals of all comparisons are right together, with a chance of 1 - alpha (Bonferroni)."""
    high: float
    p_value: float
    """Of this comparison as if it were the only one."""
    adjusted_p_value: float
    """Corrected over all (Holm): where it is at most alpha, the two differ."""


def compare_together(
    differences: Sequence[tuple[Difference, int]], comparisons: int, alpha: float = ALPHA
) -> list[Comparison]:
    """Return what several differences from one control say together.

    Args:
        differences: Each with the entities of an arm at which its interval is to be narrowest.
        comparisons: How many there are, with those that have no difference yet: these count with a p-value of 1.
        alpha: Chance that any of the intervals is ever wrong; and that any two equal versions are ever told apart.

    Source:
        P-values: where the confidence sequence of :func:`always_valid_boundary` first excludes zero (Johari, Koomen,
        Pekelis & Walsh, "Always valid inference", Operations Research 70 (2022)). Correction: Holm, "A simple
        sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979); it asks nothing of
        how the comparisons depend on each other, and those with one control do. Intervals: Bonferroni's, which Holm's
        p-values never contradict: an interval without zero has an adjusted p-value of at most alpha.
    """
    alone = [_alone(difference, planned, alpha / comparisons) for difference, planned in differences]
    missing = [1.0] * (comparisons - len(alone))
    adjusted = holm_adjusted([*(p_value for *_, p_value in alone), *missing])
    return [Comparison(*own, adjusted_p) for own, adjusted_p in zip(alone, adjusted, strict=False)]


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Return each p-value corrected over all of them, in their order; at most 1.

    Source:
        Holm (1979): the smallest times their number, the next times one less, and none below the one before it.
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _alone(difference: Difference, planned: int, alpha: float) -> tuple[float, float, float]:
    """Return the interval that is wrong with a chance of ``alpha`` at any time, and the p-value that goes with it."""
    error, fraction = difference.standard_error, difference.entities_of_equal_arms / planned
    reach = always_valid_boundary(fraction, alpha) * error
    interval = difference.difference - reach, difference.difference + reach
    if error <= ROUNDING * max(abs(difference.value_a), abs(difference.value_b)):
        return *interval, 1.0
    mixture = interval_mixture(fraction, alpha)
    squared = (difference.difference / error) ** 2
    return *interval, min(1.0, sqrt(1 + mixture) * exp(-squared * mixture / (2 * (1 + mixture))))
