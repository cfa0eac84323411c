"""Tail shift: how many more values are beyond a threshold because all of them have moved.

A distribution whose logarithm moves by ``D`` has ``S(threshold * exp(-D))`` of its values beyond a threshold instead of
``S(threshold)``. On a logarithmic scale a tail is nearly straight over twenty percent, so that is about ``exp(h * D)``
times as many, with the slope ``h`` that the champion's own tail has there (Hill 1975, of two thresholds). The
challenger's threshold is 20 % higher already, so a shift up to that explains nothing more.
"""

from math import log

import numpy as np

from understudy.core.statistics.sequential_evidence import FloatArray

THRESHOLD_RATIO = 1.2
"""Of the challenger's threshold to the champion's, which are also the two that the slope is told by."""
SPANS = (8, 20, 40)
"""Windows before and with each one in which the shift is measured: 2, 5 and 10 minutes; the first that has enough."""
ENOUGH_CALLS = 60
"""Of the challenger's: then the shift is off by 7 % or so, of a latency that scatters as one usually does."""
MAX_LOG = 4.0
"""More than e^4 times as many nothing explains."""


def tail_slope(beyond_low: float, beyond_high: float) -> float:
    """Return a tail's slope from how many values are beyond a threshold and beyond 1.2 times it; 0 while unknown."""
    if beyond_high <= 0:
        return 0.0
    return max(0.0, log(beyond_low / beyond_high) / log(THRESHOLD_RATIO))


def recent_shift(number: FloatArray, total: FloatArray) -> FloatArray:
    """Return how far all values moved in the last minutes of each window: the challenger's mean above the champion's.

    Args:
        number: Values of champion and challenger in each window, shape (2, windows).
        total: The sums of their logarithms, shape (2, windows).

    Returns:
        Shape (windows,); 0 without values of one side. Where no span has enough calls, the longest says it.
    """
    sums = np.zeros((SPANS[-1] + number.shape[1], 4))
    sums[SPANS[-1] :] = np.cumsum(np.concatenate([number, total]).T, axis=0)
    shift = np.zeros(number.shape[1])
    is_open = np.ones(number.shape[1], np.bool_)
    for span in SPANS:
        first = SPANS[-1] - span
        champion, challenger, sum_champion, sum_challenger = (
            sums[SPANS[-1] :] - sums[first : first + number.shape[1]]
        ).T
        is_known = is_open & (champion > 0) & (challenger >= (ENOUGH_CALLS if span < SPANS[-1] else 1))
        means = [sum_challenger[is_known] / challenger[is_known], sum_champion[is_known] / champion[is_known]]
        shift[is_known] = means[0] - means[1]
        is_open &= ~is_known
    return shift


def explained_by_shift(shift: FloatArray, slope: float) -> FloatArray:
    """Return how many times as many values beyond its higher threshold the shift of a window's last minutes explains.

    Args:
        shift: What :func:`recent_shift` says, shape (windows,).
        slope: Of the champion's tail.

    Returns:
        Shape (windows,), 1 to e^4: never less than 1, so that a challenger that is faster gains nothing by it.
    """
    explained: FloatArray = np.exp(np.clip(slope * (shift - log(THRESHOLD_RATIO)), 0.0, MAX_LOG))
    return explained
