"""Trend: whether the difference of two means goes up or down over time.

A straight line through the differences of windows, by weighted least squares (Draper and Smith, *Applied Regression
Analysis*, 1998, §9.2). Its slope's error is the larger one of two estimates, what single values scatter by and what is
left beside the line, and has the noise of pods in it.
"""

from typing import NamedTuple

import numpy as np

from understudy.core.statistics.mean_shift import Moments
from understudy.core.statistics.pod_noise import BLOCK_SECONDS, NO_NOISE, PodNoise
from understudy.core.statistics.sequential_evidence import FloatArray

MIN_WINDOWS = 8
"""Below it windows say nothing of a slope: of two minutes' calls one slow quarter of a minute would decide."""


class Trend(NamedTuple):
    """How far the challenger's mean is above the champion's, and how that changes."""

    level: float
    """The mean difference."""
    slope: float
    """By which it changes in a second; 0 while ``error`` is infinite."""
    error: float
    """Standard error of the slope; infinite while windows are too few."""
    seconds: float
    """From the beginning of the first window to that of the last one."""
    calls: float
    """Values of the challenger that it is of."""

    @property
    def z(self) -> float:
        """How significantly the difference rises; below 0 it falls."""
        return self.slope / self.error if self.error > 0 else 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """The difference at the beginning and at the end, by the line."""
        half = self.slope * self.seconds / 2
        return self.level - half, self.level + half


def trend_of(seconds: FloatArray, moments: Moments, noise: PodNoise = NO_NOISE) -> Trend | None:
    """Return the trend of the difference of means; ``None`` where no window has values of both sides.

    Args:
        seconds: When each window begins, shape (windows,).
        moments: Of the same windows.
        noise: How far each side's mean of five minutes wanders by itself.
    """
    both = (moments.champion > 0) & (moments.challenger > 0)
    if not both.any():
        return None
    times, used = seconds[both], moments.compared()
    weights = used.champion * used.challenger / (used.champion + used.challenger)
    differences = used.challenger_sum / used.challenger - used.champion_sum / used.champion
    total, length = float(weights.sum()), float(times[-1] - times[0])
    level, calls = float(weights @ differences) / total, float(used.challenger.sum())
    if len(times) < MIN_WINDOWS:
        return Trend(level, 0.0, np.inf, length, calls)
    places = times - float(weights @ times) / total
    spread = float(weights @ places**2)
    slope = float((weights * places) @ differences) / spread
    beside = differences - level - slope * places
    variance = max(_within_windows(used), float(weights @ beside**2) / (len(times) - 2))
    # The line's error where the means of blocks of five minutes wander: of few blocks it is told by their number alone.
    blocks = max(1.0, length / BLOCK_SECONDS)
    wandering = 2 * noise.variance * 12 / (blocks * length**2)
    return Trend(level, slope, float(np.sqrt(variance / spread + wandering)), length, calls)


def _within_windows(used: Moments) -> float:
    """Return the variance of single values about their windows' means, of both sides together."""
    squares = (used.champion_squares - used.champion_sum**2 / used.champion).sum()
    squares += (used.challenger_squares - used.challenger_sum**2 / used.challenger).sum()
    degrees = (used.champion - 1).sum() + (used.challenger - 1).sum()
    return max(0.0, float(squares / degrees)) if degrees > 0 else 0.0
