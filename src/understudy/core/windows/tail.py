"""The tail of latency: how far beyond a rollout's threshold τ answers are, in steps of 20 %, by analysis bucket.

One threshold cannot tell a p99 from a p99.9, and a threshold for each would have to reach every proxy before the first
call. So proxies count how many steps an answer is beyond τ, and the analysis picks the step that is the champion's 99th
or 99.9th percentile. Such cells add up like any count, and few calls are in them at all.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import TAIL_STEPS, Window

STEP_RATIO = 1.2
"""Seed 003: a percentile that is 20 % higher is too high. One step beyond the champion's threshold is the
challenger's."""
_LOG_STEP = log(STEP_RATIO)


def tail_cells(
    buckets: NDArray[np.int64], latency_us: NDArray[np.int64] | NDArray[np.float64], slow_us: float
) -> NDArray[np.int64]:
    """Return the cells of answers that are slower than 1.2 ``slow_us``, given the analysis bucket of each.

    Returns:
        Shape (answers,): ``TAIL_STEPS * bucket + step - 1``, where ``step`` is the highest threshold that it is beyond.
    """
    steps = np.log(latency_us / slow_us) / _LOG_STEP
    return TAIL_STEPS * buckets + np.clip(np.ceil(steps).astype(np.int64) - 1, 1, TAIL_STEPS) - 1


def no_tails() -> NDArray[np.int64]:
    """Return the rows of :func:`tail_entries` of windows without slow answers."""
    return np.zeros((0, 3), np.int64)


def tail_entries(windows: Sequence[Window]) -> NDArray[np.int64]:
    """Return what windows hold as rows of window, cell and count, shape (entries, 3); the window is its place."""
    return cell_entries([window.tails for window in windows])


def cell_entries(histograms: Sequence[Histogram]) -> NDArray[np.int64]:
    """Return the cells of one histogram for each window, in rows as those of :func:`tail_entries`."""
    rows = [(place, *pair) for place, histogram in enumerate(histograms) for pair in histogram.counts.items()]
    return np.array(rows, np.int64).reshape(-1, 3)


def counts_beyond_step(entries: NDArray[np.int64], step: int, windows: int) -> NDArray[np.float64]:
    """Return the sums over the buckets of what :func:`beyond_step` returns, shape (windows,), sooner."""
    places, _, counts = entries[entries[:, 1] % TAIL_STEPS >= step - 1].T
    return np.bincount(places, counts, windows).astype(np.float64)


def beyond_step(entries: NDArray[np.int64], step: int, windows: int) -> NDArray[np.float64]:
    """Return how many answers are beyond a step, shape (windows, 64)."""
    places, cells, counts = entries[entries[:, 1] % TAIL_STEPS >= step - 1].T
    found = np.zeros(windows * ANALYSIS_BUCKETS)
    np.add.at(found, places * ANALYSIS_BUCKETS + cells // TAIL_STEPS, counts)
    return found.reshape(windows, ANALYSIS_BUCKETS)


def tail_step_of(value_us: float, slow_us: float) -> int | None:
    """Return the step whose threshold is nearest to a value; ``None`` where the challenger's would be beyond the last.

    Below 1.2 τ it is step 1, the first that cells tell apart.
    """
    if value_us <= 0 or slow_us <= 0:
        return None
    step = max(1, round(log(value_us / slow_us) / _LOG_STEP))
    return step if step < TAIL_STEPS else None
