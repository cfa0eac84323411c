"""How surely a metric is worse: champion and challenger minute by minute, beyond what the champion does by itself.

Minutes are alike: a pod has a bad quarter of an hour, and a query over five minutes is in five values. So differences
are taken in blocks, short ones and ones that grow with the time; and what the champion's own past says of how far a
mean wanders is added for both versions. The least significant of the two counts.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.pod_noise import NO_NOISE, PodNoise
from understudy.core.statistics.sequential_evidence import FloatArray

MIN_MINUTES = 30
"""Below it nothing is said: six blocks of the shortest length."""
MIN_MINUTES_ALONE = 120
"""The same where the champion's past does not say how far a mean of half an hour wanders."""
BLOCK_MINUTES = 5
MIN_BLOCKS = 6
GROWING_BLOCKS = 12
"""The longer blocks: so many, whatever the time."""
PAST_LENGTHS = (5, 15, 30, 60)
"""Minutes of the blocks in which the champion's past is looked at."""
MIN_PAST_BLOCKS = 4
_ROUNDING = 1e-12
"""As a share of the values, which have six digits: a standard error below it is of sums that were rounded."""


class Wander(NamedTuple):
    """The variance of the mean of one length, as a share of the mean's square, and of how many differences."""

    minutes: int
    variance: float
    degrees: int


class Minutes(NamedTuple):
    """Values of both versions in the same minutes, shape (minutes,) each, none below 0."""

    champion: FloatArray
    challenger: FloatArray

    def cut(self, first: int) -> "Minutes":
        """Return the minutes from ``first`` on."""
        return Minutes(self.champion[first:], self.challenger[first:])


def wander_of(past: FloatArray) -> tuple[Wander, ...]:
    """Return how far the champion's mean wanders by itself, for each length that the past has enough blocks of.

    Of neighbours, so that a day's course is no wandering: half the mean square of what one block differs from the one
    before (von Neumann 1941; the Allan variance).
    """
    middle = float(past.mean()) if len(past) else 0.0
    if middle <= 0:
        return ()
    found = []
    for minutes in PAST_LENGTHS:
        count = len(past) // minutes
        if count >= MIN_PAST_BLOCKS:
            means = past[len(past) - count * minutes :].reshape(count, minutes).mean(axis=1) / middle
            found.append(Wander(minutes, float(np.mean(np.diff(means) ** 2)) / 2, count - 1))
    return tuple(found)


def minutes_asked(wander: tuple[Wander, ...]) -> int:
    """Return below how many minutes nothing is said."""
    return MIN_MINUTES if any(one.minutes >= MIN_MINUTES for one in wander) else MIN_MINUTES_ALONE


def z_beyond(minutes: Minutes, limit: float, sign: int, wander: tuple[Wander, ...]) -> float:
    """Return how surely the challenger's mean is beyond ``limit`` times the champion's; 0 while nothing can be said.

    Args:
        minutes: The values.
        limit: The ratio of the means that is tolerated.
        sign: 1 where higher is worse, -1 where lower is.
        wander: Of the champion's past.
    """
    if len(minutes.champion) < minutes_asked(wander):
        return 0.0
    mean, errors = _beyond(minutes, limit, sign, wander)
    return min((t_to_z(mean / error, degrees) for error, degrees in errors if error > 0), default=0.0)


def is_beyond_without_chance(minutes: Minutes, limit: float, sign: int, wander: tuple[Wander, ...]) -> bool:
    """Whether the challenger is beyond ``limit`` and no value ever changed, so that nothing says what chance does.

    Args:
        minutes: The values, at least :func:`minutes_asked`.
        limit: As for :func:`z_beyond`, like ``sign`` and ``wander``.
        sign: 1 where higher is worse, -1 where lower is.
        wander: Of the champion's past.
    """
    mean, errors = _beyond(minutes, limit, sign, wander)
    return mean > 0 and not any(error > 0 for error, _ in errors)


def _beyond(
    minutes: Minutes, limit: float, sign: int, wander: tuple[Wander, ...]
) -> tuple[float, list[tuple[float, float]]]:
    """Return how far the challenger's mean is beyond the limit, with its standard errors."""
    beyond = sign * (minutes.challenger - limit * minutes.champion)
    return float(beyond.mean()), _standard_errors(beyond, float(minutes.champion.mean()), wander)


def ratio_error(minutes: Minutes, ratio: float, wander: tuple[Wander, ...]) -> float | None:
    """Return the standard error of the ratio of the means (delta method); ``None`` while nothing can be said."""
    champion = float(minutes.champion.mean()) if len(minutes.champion) >= minutes_asked(wander) else 0.0
    if champion <= 0:
        return None
    errors = _standard_errors(minutes.challenger - ratio * minutes.champion, champion, wander)
    return max(error for error, _ in errors) / champion


def _standard_errors(differences: FloatArray, champion: float, wander: tuple[Wander, ...]) -> list[tuple[float, float]]:
    """Return standard errors of the mean difference, each with its degrees of freedom; of ``MIN_MINUTES`` or more."""
    count = len(differences)
    noise = _noise(wander, count, champion)
    least = _ROUNDING * max(champion, float(np.abs(differences).max()))
    found = []
    for length in {BLOCK_MINUTES, max(BLOCK_MINUTES, count // GROWING_BLOCKS)}:
        blocks = count // length
        if blocks < MIN_BLOCKS:
            continue
        means = differences[count - blocks * length :].reshape(blocks, length).mean(axis=1)
        error = float(means.std(ddof=1)) / sqrt(blocks)
        found.append(noise.added_to(error if error > least else 0.0, blocks - 1, 1))
    return found


def _noise(wander: tuple[Wander, ...], count: int, champion: float) -> PodNoise:
    """Return the variance that one side's mean of so many minutes has by itself: the largest that any length says."""
    most = NO_NOISE
    for minutes, variance, degrees in wander:
        own = variance * champion**2 * minutes / count
        if minutes <= count and own > most.variance:
            most = PodNoise(own, degrees)
    return most
