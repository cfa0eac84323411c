"""Own past: whether the last minutes of a series lie above what the same series did in the same way before.

After days a sequential test of a mean sees nothing new for hours: what has just begun is averaged with all that was.
Here the last 3, 10, 30 and 60 minutes are each one statistic, and the same statistic of all the minutes before says how
far it wanders by itself, whatever makes it wander.
"""

from math import log
from typing import NamedTuple

import numpy as np

from understudy.core import special_functions as special
from understudy.core.statistics.sequential_evidence import FloatArray

UNIT_SECONDS = 30
SPANS = (6, 20, 60, 120)
"""Units that a statistic is of: 3, 10, 30 and 60 minutes."""
DROPPED_UNITS = 5
"""The largest ones, which a statistic leaves out: an incident of two minutes is in no more of them."""
MIN_PAST = 20
"""Statistics that the past has to have: their variance says how far the next one may be off."""
_LEAST_CHANCE = 1e-300


class OwnPast(NamedTuple):
    """The span that says the most."""

    log_evidence: float
    """Of all spans and all moments together; 0 or less says nothing."""
    units: int
    latest: float
    """The statistic of the last units."""
    past: float
    """The mean of the same statistic before."""


def beyond_own_past(values: FloatArray, tolerated: float, least: float) -> OwnPast | None:
    """Return how surely the last values are beyond those before; ``None`` while no span has enough of a past.

    Args:
        values: One a unit, oldest first, shape (units,).
        tolerated: How far beyond the mean of the past, and beyond 0, a statistic may be.
        least: What a statistic has to be at least, whatever the past was: below it nothing is said.

    Returns:
        The inverse of the chance of a t-distributed prediction error, divided by all the chances that it has: the four
        spans, the units of a span, and each number of past statistics ``j`` by ``1 / log2(j + 1) - 1 / log2(j + 2)``,
        which for all of them comes to 1. So its logarithm may be asked at every unit, for ever (Bonferroni).
    """
    found = [one for units in SPANS if (one := _of_span(values, units, tolerated, least)) is not None]
    return max(found, key=lambda one: one.log_evidence, default=None)


def _of_span(values: FloatArray, units: int, tolerated: float, least: float) -> OwnPast | None:
    count = len(values) // units
    if count <= MIN_PAST:
        return None
    spans = np.sort(values[len(values) - count * units :].reshape(count, units), axis=1)
    *past, latest = spans[:, : units - DROPPED_UNITS].mean(axis=1).tolist()
    number, middle, deviation = len(past), float(np.mean(past)), float(np.std(past, ddof=1))
    if deviation == 0 or latest < least:
        return OwnPast(0.0, units, latest, middle)
    error = deviation * (1 + 1 / number) ** 0.5
    t = (latest - max(middle, 0.0) - tolerated) / error
    chance = max(float(special.stdtr(number - 1, -t)), _LEAST_CHANCE)
    share = (1 / np.log2(number + 1) - 1 / np.log2(number + 2)) / units / len(SPANS)
    return OwnPast(-log(chance) + log(share), units, latest, middle)
