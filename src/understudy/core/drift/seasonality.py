"""Weekly seasonality of a subject, learnt from the same hours of earlier weeks."""

from math import pi
from typing import NamedTuple

import numpy as np

from understudy.core.drift.baseline import FloatArray
from understudy.core.drift.prefix_sums import prefix_sums
from understudy.core.drift.subject_window import IntArray

WEEK_SECONDS = 7 * 86_400.0
MAX_WEEKS = 4
"""Earlier weeks that are looked at: an incident in one of them does not move the median."""

_SAME_HOUR_SECONDS = 1.0


class Seasons(NamedTuple):
    """What is expected of each window beyond the level of its week."""

    offsets: FloatArray
    """Shape ``(windows, statistics)``; 0 for a window without earlier weeks."""
    inflation: FloatArray
    """Shape ``(windows,)``: how many times the variance of a window is that of one compared with a known value."""


def seasons_of(starts_seconds: FloatArray, rows: FloatArray, means: FloatArray) -> Seasons:
    """Return by how much each window is expected to differ from the level, because of its hour of the week.

    The offset is the same hour of an earlier week less that week's level (the three and a half days to each side), and
    the median over such weeks. Only the shape of the week comes from history, the level stays the baseline's: a drift
    that lasts for weeks does not become the new normal. A window needs a week and a half of history.

    Args:
        starts_seconds: Increasing, shape ``(windows,)``.
        rows: Shape ``(windows,)``.
        means: Statistics that are means over rows, shape ``(windows, statistics)``.
    """
    sums, totals = prefix_sums(means * rows[:, None]), prefix_sums(rows)
    deviations = np.full((MAX_WEEKS, *means.shape), np.nan)
    for number in range(MAX_WEEKS):
        centres = starts_seconds - (number + 1) * WEEK_SECONDS
        first = np.searchsorted(starts_seconds, centres - WEEK_SECONDS / 2)
        last = np.searchsorted(starts_seconds, centres + WEEK_SECONDS / 2)
        same = np.minimum(np.searchsorted(starts_seconds, centres - _SAME_HOUR_SECONDS / 2), len(rows) - 1)
        known = (np.abs(starts_seconds[same] - centres) < _SAME_HOUR_SECONDS) & (rows[same] > 0)
        known &= starts_seconds[0] <= centres - WEEK_SECONDS / 2
        first, last, same = first[known], last[known], same[known]
        level = (sums[last] - sums[first]) / (totals[last] - totals[first])[:, None]
        deviations[number, known] = means[same] - level
    weeks: IntArray = np.isfinite(deviations[:, :, 0]).sum(axis=0)
    # π/2 is what the median of normal values costs against their mean; for one or two weeks it is too careful.
    return Seasons(_median(deviations, weeks), 1 + np.where(weeks > 0, pi / 2 / np.maximum(weeks, 1), 0.0))


def _median(deviations: FloatArray, weeks: IntArray) -> FloatArray:
    """Return the median over the first axis of the values that are there (NaN sorts last); 0 where none is."""
    ordered = np.sort(deviations, axis=0)
    low, high = (np.maximum(weeks - 1, 0) // 2)[None, :, None], (weeks // 2)[None, :, None]
    middle = (np.take_along_axis(ordered, low, axis=0) + np.take_along_axis(ordered, high, axis=0))[0] / 2
    return np.where(weeks[:, None] > 0, middle, 0.0)
