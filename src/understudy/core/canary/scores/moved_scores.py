"""Moved scores: whether a challenger's mean score is surely further from the champion's than a retrained model's is."""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np

from understudy.core.amounts import amount_words
from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA
from understudy.core.canary.scores.score_shift import deviation_of, scores_compared
from understudy.core.statistics.mean_shift import mean_shift, shift_z
from understudy.core.statistics.sequential_evidence import half_normal_log_evidence, mixture_radius, processes_of
from understudy.core.windows.strata import Strata

MARGIN = 0.1
"""In standard deviations of the champion's scores; drift has the same one."""
ALPHA = 0.01
"""Chance that a whole rollout of an equal version is held, over all looks and both sides."""
MIN_ENTITIES = 200
"""That met the challenger: the evidence across them is asymptotic."""


class ScoreMove(NamedTuple):
    """Both versions' mean scores in the same windows, and how sure it is that they are apart."""

    champion: float
    challenger: float
    change: float
    """In standard deviations of the champion's scores, as its bounds, which hold at all looks together with 95 %."""
    change_low: float
    change_high: float
    log_evidence: float

    @property
    def is_beyond_doubt(self) -> bool:
        """Whether the change is beyond the margin."""
        return self.log_evidence >= -log(ALPHA / 2)


def score_move(strata: Strata, step_starts: Sequence[float], planned: int) -> ScoreMove | None:
    """Return how far the mean score has moved; ``None`` while too few entities met the challenger.

    The evidence is that of a rollout's means: for each step a process of its own, the least significant of several
    estimates of the variance, that across analysis buckets of entities among them.

    Args:
        strata: Windows that are closed.
        step_starts: In seconds since the epoch.
        planned: How many steps the plan has.
    """
    if strata.arrivals.challenger_entities < MIN_ENTITIES:
        return None
    compared = scores_compared(strata, processes_of([strata.first_at(start) for start in step_starts], planned))
    shift, deviation = mean_shift(compared.moments), deviation_of(compared.moments)
    if shift is None or deviation <= 0:
        return None
    evidence = []
    for sign in (1, -1):
        found, windows = shift_z(
            compared.moments, compared.buckets, MARGIN * deviation, compared.processes.firsts, sign
        )
        own = half_normal_log_evidence(found, np.maximum(windows, 1.0), ALPHA / 2)
        evidence.append(compared.processes.together(own))
    radius = shift.standard_error * mixture_radius(shift.windows, INTERVAL_ALPHA)
    change, low, high = ((shift.difference + side) / deviation for side in (0.0, -radius, radius))
    return ScoreMove(shift.champion, shift.challenger, change, low, high, max(evidence))


def move_words(move: ScoreMove | None) -> str:
    """Say how far the mean score has moved, without the version's name; empty while it may be within the margin."""
    if move is None or not move.is_beyond_doubt:
        return ""
    return (
        f"its mean score is {amount_words(move.challenger)}, the champion's {amount_words(move.champion)} at the same "
        f"times: {move.change:+.2f} standard deviations ({move.change_low:+.2f} to {move.change_high:+.2f}), "
        f"the limit is {MARGIN:g}"
    )
