"""Incident bound: what a short incident may add to the evidence, and when what goes on is no short incident any more.

A cap on each window is not enough: eight windows of thirty percent errors, two minutes of a host that restarts or of a
dependency that is away, added up to twice what a rollback needs. So any :data:`RUN_WINDOWS` together may add little to
each alternative, whatever is in them. The bound is lifted where the :data:`HALF_WINDOWS` just before a window and as
many before those each look worse by themselves: no incident of two minutes reaches into both and is not yet over.

The gains are only ever cut, by what was seen before, so they stay evidence of the same kind (a supermartingale).
"""

from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from understudy.core.statistics.sequential_evidence import (
    FloatArray,
    Rates,
    log_mean_exp,
    log_rate_evidence,
    rate_gains,
)

RUN_WINDOWS = 9
"""What an incident of two minutes touches, wherever in a window it begins."""
MAX_RUN_GAIN = 2.2
"""Natural logarithm. Chosen by simulation, with the two constants below: see ADR 65."""
HALF_WINDOWS = RUN_WINDOWS - 1
LIFTING_EVIDENCE = 3.0
"""Natural logarithm of the evidence, not cut, that each half needs by itself: twenty."""
BOUND_PART, LIFTED_PART = 1 / 4, 1 / 2
"""Of what a check needs, the most that one window adds, while the bound holds and where it is lifted."""
LEAST_RATIO = 0.5
"""That the rate is at least a smaller part of the champion's says nothing."""
RATIO_STEPS = 5
"""Halvings of the ratios that a bound may be among; it is at most a few percent below the exact one."""


def incident_bounded(gains: FloatArray, log_needed: float) -> FloatArray:
    """Return the gains of which no short incident makes a verdict.

    Args:
        gains: Shape (windows, alternatives), not cut, in the order of time.
        log_needed: Logarithm of the evidence that the check needs.

    Returns:
        Gains that are nowhere larger. Where the bound holds, a window adds a quarter of what is needed at most, and so
        much that no run of windows which it ends, up to :data:`RUN_WINDOWS` long, adds more than
        :data:`MAX_RUN_GAIN`; where it is lifted, half of what is needed.
    """
    is_lifted = lifted_windows(gains)
    parts = np.where(is_lifted, LIFTED_PART, BOUND_PART)
    bounded: FloatArray = np.minimum(gains, (log_needed * parts)[:, None])
    for window in np.flatnonzero(_may_exceed(bounded) & ~is_lifted).tolist():
        before = bounded[max(window - HALF_WINDOWS, 0) : window][::-1]
        run_before = before.cumsum(axis=0).max(axis=0, initial=0.0)
        np.minimum(bounded[window], np.maximum(MAX_RUN_GAIN - run_before, 0.0), out=bounded[window])
    return bounded


def bounded_low(rates: Rates, most: float, log_needed: float, alpha: float) -> float:
    """Return the lower bound of the rate ratio that is left where no short incident counts for more than a little.

    Args:
        rates: In the order of time.
        most: The bound that all bad events give, as :func:`ratio_interval` returns it.
        log_needed: Logarithm of the evidence that the check needs.
        alpha: Of an interval with two sides: half of it is that of this bound.

    Returns:
        The largest ratio up to ``most`` that the bounded evidence rejects, at all looks together with a chance of
        ``1 - alpha / 2``; 0 where it rejects none from :data:`LEAST_RATIO` on.
    """

    def is_rejected(ratio: float) -> bool:
        gains = incident_bounded(rate_gains(rates, ratio, inf), log_needed)
        return log_rate_evidence(gains) >= log(2 / alpha)

    if is_rejected(most):
        return most
    low, high = log(LEAST_RATIO), log(most)
    if not is_rejected(LEAST_RATIO):
        return 0.0
    for _ in range(RATIO_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_rejected(exp(middle)) else (low, middle)
    return exp(low)


def lifted_windows(gains: FloatArray) -> NDArray[np.bool_]:
    """Return in which windows the bound is lifted, shape (windows,); in none of the first sixteen."""
    is_lifted = np.zeros(len(gains), np.bool_)
    if len(gains) <= 2 * HALF_WINDOWS:
        return is_lifted
    halves = _sums_of_runs(gains, HALF_WINDOWS)
    looks_worse = halves.max(axis=1) >= LIFTING_EVIDENCE  # no mean exceeds the largest, and few windows have that
    looks_worse[looks_worse] = log_mean_exp(halves[looks_worse].T) >= LIFTING_EVIDENCE
    # The half that begins with window b ends before window b + 8: it is the second half of that one's sixteen.
    is_lifted[2 * HALF_WINDOWS :] = looks_worse[: -HALF_WINDOWS - 1] & looks_worse[HALF_WINDOWS:-1]
    return is_lifted


def _may_exceed(gains: FloatArray) -> NDArray[np.bool_]:
    """Whether a run that ends with a window adds too much while nothing is cut: otherwise none does when some is."""
    run, largest = gains.copy(), gains.copy()
    for length in range(2, min(RUN_WINDOWS, len(gains)) + 1):
        run = run[1:] + gains[: -length + 1]
        np.maximum(largest[length - 1 :], run, out=largest[length - 1 :])
    found: NDArray[np.bool_] = largest.max(axis=1) > MAX_RUN_GAIN
    return found


def _sums_of_runs(values: FloatArray, length: int) -> FloatArray:
    """Return the sum of each run of so many windows, by the run's first one; shape (windows - length + 1, any)."""
    sums = values[: len(values) - length + 1].copy()
    for place in range(1, length):
        sums += values[place : len(values) - length + 1 + place]
    return sums
