"""The checks of means: typical latency and scores."""

from collections.abc import Callable
from math import exp, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.check_input import INTERVAL_ALPHA, Comparison, Keys, Look, evidence_row, finite_exp
from understudy.core.canary.decision import Check, Evidence
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.mean_shift import Moments, Shift, mean_shift, shift_z
from understudy.core.statistics.sequential_evidence import Processes, half_normal_log_evidence, mixture_radius
from understudy.core.windows.window import BucketColumn


class MeanCheck(NamedTuple):
    """A mean: what is averaged, and what may be concluded from it."""

    moments: Moments
    buckets: BucketSums
    processes: Processes


def judge_typical_latency(look: Look, log_needed: float) -> Evidence:
    """Return whether the geometric mean of the latency is higher than tolerated."""
    compared = _latency(look)
    limit_ratio = look.policy.tolerated_latency_ratio
    keys = _keys(look, compared, log(limit_ratio), 1, log_needed)

    shift = mean_shift(compared.moments.cut(compared.processes.first))
    comparison = _comparison(shift, lambda mean: exp(mean) / 1e6, finite_exp)
    is_enough = shift is not None and look.has_enough_requests
    return evidence_row(look, Check.TYPICAL_LATENCY, comparison, limit_ratio, keys, is_enough=is_enough)


def judge_score_shift(look: Look, limit: float, log_needed: float) -> Evidence:
    """Return whether the mean score differs by more than ``limit`` standard deviations of the champion's scores."""
    compared = _scores(look)
    deviation = _deviation(compared.moments)
    # Two one-sided checks: each needs twice the evidence, or what both need is one logarithm of 2 more.
    keys = max(_keys(look, compared, limit * deviation, sign, log_needed + log(2)) for sign in (1, -1))
    shift = mean_shift(compared.moments)
    comparison = _comparison(shift, float, lambda difference: difference / deviation if deviation > 0 else 0.0)
    is_enough = shift is not None and look.has_enough_requests
    return evidence_row(look, Check.SCORE_SHIFT, comparison, limit, keys, is_enough=is_enough)


def _keys(look: Look, compared: MeanCheck, limit: float, sign: int, log_needed: float) -> Keys:
    """Return both keys, made of one z-score of each process, the least significant; only what they need differs."""
    processes = compared.processes
    scores, windows = shift_z(compared.moments, compared.buckets, limit, processes.firsts, sign)
    against_chance, across_entities = (
        half_normal_log_evidence(scores, np.maximum(windows, 1.0), alpha)
        for alpha in (exp(-log_needed), look.policy.across_entities_alpha)
    )
    return Keys(processes.together(against_chance), log_needed, processes.together(across_entities))


def _latency(look: Look) -> MeanCheck:
    sides = (look.strata.champion, look.strata.challenger)
    return MeanCheck(
        Moments(
            *(column for side in sides for column in (side.answered, side["log_latency"], side["log_latency_squares"]))
        ),
        BucketSums(
            *(column for side in sides for column in (side.bucket(BucketColumn.LOG_LATENCY), side.bucket_answered))
        ),
        look.processes_of_stages().after(look.warm),
    )


def _scores(look: Look) -> MeanCheck:
    sides = (look.strata.champion, look.strata.challenger)
    columns = (BucketColumn.SCORE, BucketColumn.SCORE_CALLS)
    return MeanCheck(
        Moments(*(side[name] for side in sides for name in ("score_calls", "score", "score_squares"))),
        BucketSums(*(side.bucket(column) for side in sides for column in columns)),
        look.processes_of_stages(),
    )


def _deviation(moments: Moments) -> float:
    """Return the standard deviation of the champion's values."""
    number, total, squares = (float(column.sum()) for column in moments[:3])
    return max(squares / number - (total / number) ** 2, 0.0) ** 0.5 if number > 0 else 0.0


def _comparison(shift: Shift | None, value: Callable[[float], float], change: Callable[[float], float]) -> Comparison:
    """Return a shift as people read it, given what a mean and a difference of means are shown as."""
    if shift is None:
        return Comparison(None, None, None, None, None)
    radius = shift.standard_error * mixture_radius(shift.windows, INTERVAL_ALPHA)
    bounds = (shift.difference - radius, shift.difference + radius)
    return Comparison(value(shift.champion), value(shift.challenger), change(shift.difference), *map(change, bounds))
