"""How far the challenger's mean is above the champion's, and what may be made of it.

The difference is taken within windows. Its variance is estimated in several ways, because a pod with a bad minute, a
burst, or a busy entity each makes requests alike in its own way; the least significant of them counts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.cluster_test import BucketSums, cluster_z, expected_means, t_to_z
from understudy.core.statistics.pod_noise import NO_NOISE, PodNoise
from understudy.core.statistics.sequential_evidence import FloatArray, IntArray

BLOCKS = (1, 5, 15)
"""Windows that are left out together by the jackknifes (statistics page, §8)."""
MIN_BLOCKS = 6
"""Below it a jackknife's own variance is too uncertain to be asked; t with 5 degrees of freedom is harsh already."""


class Moments(NamedTuple):
    """Number, sum and sum of squares in each window, shape (windows,) each."""

    champion: FloatArray
    champion_sum: FloatArray
    champion_squares: FloatArray
    challenger: FloatArray
    challenger_sum: FloatArray
    challenger_squares: FloatArray

    def cut(self, first: int) -> "Moments":
        """Return the windows from ``first`` on."""
        return Moments(*(column[first:] for column in self))

    def compared(self) -> "Moments":
        """Return the windows in which both sides have values."""
        both = (self.champion > 0) & (self.challenger > 0)
        return Moments(*(column[both] for column in self))


class Shift(NamedTuple):
    """A difference of means, and the standard error that the interval is drawn with."""

    champion: float
    challenger: float
    standard_error: float
    windows: int

    @property
    def difference(self) -> float:
        """The challenger's mean less the champion's, of the same windows."""
        return self.challenger - self.champion


def mean_shift(moments: Moments, noise: PodNoise = NO_NOISE) -> Shift | None:
    """Return the difference of the means over windows; ``None`` when it cannot be told.

    Each window weighs as much as it can tell, ``n_c n_s / (n_c + n_s)`` of its two numbers of values. ``noise`` is in
    the standard error.
    """
    used = moments.compared()
    if len(used.champion) == 0:
        return None
    champion, challenger = _means(used)
    errors = [error for error, _ in _standard_errors(used, challenger - champion, noise)]
    return Shift(champion, challenger, max(errors), len(used.champion)) if errors else None


def shift_z(
    moments: Moments, buckets: BucketSums, limit: float, firsts: IntArray, sign: int, *, noise: PodNoise = NO_NOISE
) -> tuple[FloatArray, FloatArray]:
    """Return how significantly the difference is beyond a limit, and how many windows say so.

    Args:
        moments: All windows.
        buckets: The same values by analysis bucket.
        limit: In the values' unit; 0 or more.
        firsts: The windows from which on they count, one after the other.
        sign: 1 when higher is worse, -1 when lower is.
        noise: Of each side's mean, added to every estimate of the variance but that over analysis buckets.

    Returns:
        For each of ``firsts`` the smallest z-score of all estimates of the variance: within windows, jackknifes over
        blocks of windows, and over analysis buckets; 0 while none can be made. Then the windows in which both sides
        have values.
    """
    clustered = sign * cluster_z(buckets, expected_means(buckets, sign * limit), firsts)
    found = [
        _least_z(moments.cut(first).compared(), limit, sign, across, noise)
        for first, across in zip(firsts.tolist(), clustered.tolist(), strict=True)
    ]
    scores, windows = np.array(found, np.float64).reshape(-1, 2).T
    return scores, windows


def _least_z(used: Moments, limit: float, sign: int, across_entities: float, noise: PodNoise) -> tuple[float, int]:
    if len(used.champion) == 0:
        return 0.0, 0
    champion, challenger = _means(used)
    difference = challenger - champion
    errors = list(_standard_errors(used, difference, noise))
    if not errors:
        return 0.0, 0
    beyond = sign * difference - limit
    return min([across_entities, *(t_to_z(beyond / error, degrees) for error, degrees in errors)]), len(used.champion)


def _means(used: Moments) -> tuple[float, float]:
    """Return the means of both sides over windows in which both have values."""
    weights = used.champion * used.challenger / (used.champion + used.challenger)
    total = weights.sum()
    champion = float(weights @ (used.champion_sum / used.champion) / total)
    return champion, float(weights @ (used.challenger_sum / used.challenger) / total)


def _standard_errors(used: Moments, difference: float, noise: PodNoise) -> Iterator[tuple[float, float]]:
    """Yield standard errors of the difference, each with its degrees of freedom."""
    weights = used.champion * used.challenger / (used.champion + used.challenger)
    within = _within_windows(used, weights)
    if within is not None:
        yield noise.added_to(*within, len(used.champion))
    jackknives = (
        noise.added_to(error, degrees, len(used.champion)) for error, degrees in _jackknives(used, difference, weights)
    )
    single = next(jackknives, None)
    if single is not None:
        yield single
        yield from (noise.moderated(error, degrees, single[0]) for error, degrees in jackknives)


def _jackknives(used: Moments, difference: float, weights: FloatArray) -> Iterator[tuple[float, float]]:
    """Yield the standard error over blocks of each length that there are enough of, the shortest first."""
    influences = weights * (used.challenger_sum / used.challenger - used.champion_sum / used.champion - difference)
    for length in BLOCKS:
        blocks = np.add.reduceat(influences, np.arange(0, len(influences), length))
        count = len(blocks)
        if count >= MIN_BLOCKS:
            error = np.sqrt(count / (count - 1) * (blocks @ blocks)) / weights.sum()
            if error > 0:
                yield float(error), count - 1


def _within_windows(used: Moments, weights: FloatArray) -> tuple[float, float] | None:
    """Return the standard error if all values are independent."""
    variance, degrees = 0.0, []
    for number, total, squares in (used[:3], used[3:]):
        freedom = float(number.sum()) - len(number)
        if freedom < 1:
            return None
        # Sums are in millionths: of values that are small, or all alike, rounding may leave less than nothing.
        spread = max(float((squares - total * total / number).sum()), 0.0) / freedom
        variance += float(weights**2 @ (spread / number))
        degrees.append(freedom)
    error = variance**0.5 / float(weights.sum())
    return (error, min(degrees)) if error > 0 else None
