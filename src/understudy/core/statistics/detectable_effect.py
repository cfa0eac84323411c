"""The smallest regression that the traffic so far could have shown, and how much more traffic a smaller one takes."""

from bisect import bisect_left, bisect_right
from math import ceil, log, sqrt
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.sequential_evidence import (
    RATIOS,
    FloatArray,
    first_stage_alpha_share,
    half_normal_log_evidence,
    log_mean_exp,
)
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

_CANDIDATES: tuple[float, ...] = tuple(np.geomspace(1.05, 1_000.0, 140).tolist())
_MAX_TRIALS = 1e9


class Exposure(NamedTuple):
    """Trials of both sides at each weight, shape (weights,), and how many windows they came in."""

    champion: FloatArray
    challenger: FloatArray
    windows: int


class DetectionThreshold(NamedTuple):
    """What a regression has to overcome, as logarithms of evidence, and the two rates that it is relative to."""

    needed: float
    across_entities_alpha: float
    tolerated_ratio: float
    champion_rate: float
    alpha_share: float = first_stage_alpha_share(has_restarts=True)
    """Share of alpha that the process which would find it has."""


def smallest_detectable(exposure: Exposure, threshold: DetectionThreshold) -> float:
    """Return the smallest rate ratio whose expected bad events would have been enough for both keys; infinity if none.

    That is a regression which is found with a chance of about one half by now, were it there from the start.
    """
    place = bisect_left(_CANDIDATES, True, key=lambda ratio: is_detectable(exposure, threshold, ratio))
    return _CANDIDATES[place] if place < len(_CANDIDATES) else float("inf")


def ratio_found_within(ratio: float) -> float:
    """Return the largest ratio up to this one that :func:`smallest_detectable` may return; the least one if none is."""
    return _CANDIDATES[max(0, bisect_right(_CANDIDATES, ratio) - 1)]


def missing_trials(exposure: Exposure, threshold: DetectionThreshold, ratio: float) -> int:
    """Return how many more challenger trials make a ratio detectable, at the last weight's proportion; 0 if it is."""
    if is_detectable(exposure, threshold, ratio):
        return 0
    low, high = 0.0, 100.0
    while high < _MAX_TRIALS and not is_detectable(_with(exposure, high), threshold, ratio):
        low, high = high, high * 2
    for _ in range(20):
        middle = (low + high) / 2
        if is_detectable(_with(exposure, middle), threshold, ratio):
            high = middle
        else:
            low = middle
    return ceil(high)


def _with(exposure: Exposure, more: float) -> Exposure:
    """Return the exposure after more challenger trials, in as many more windows as they take at the same pace."""
    champion, challenger = exposure.champion.copy(), exposure.challenger.copy()
    last = max(float(challenger[-1]), 1.0)
    champion[-1] += more * float(exposure.champion[-1]) / last
    challenger[-1] += more
    return Exposure(champion, challenger, exposure.windows)


def is_detectable(exposure: Exposure, threshold: DetectionThreshold, ratio: float) -> bool:
    """Whether both keys would say so at the expected numbers of bad events, which need not be whole."""
    share = exposure.challenger * threshold.tolerated_ratio
    share = np.divide(share, share + exposure.champion, out=np.zeros_like(share), where=share > 0)
    bad_champion = threshold.champion_rate * exposure.champion
    bad_challenger = min(threshold.champion_rate * ratio, 1.0) * exposure.challenger
    gains = bad_challenger.sum() * np.log(RATIOS) - np.log1p(np.outer(RATIOS - 1, share)) @ (
        bad_champion + bad_challenger
    )
    first_key = float(log_mean_exp(gains))
    if first_key < threshold.needed - log(threshold.alpha_share):
        return False
    score = float((1 - share) @ bad_challenger - share @ bad_champion)
    variance = float((1 - share) ** 2 @ bad_challenger + share**2 @ bad_champion)
    z = t_to_z(score / sqrt(variance), ANALYSIS_BUCKETS - 1) if variance > 0 else 0.0
    second_key = half_normal_log_evidence(z, max(exposure.windows, 1), threshold.across_entities_alpha)
    return second_key >= -log(threshold.across_entities_alpha) - log(threshold.alpha_share)
