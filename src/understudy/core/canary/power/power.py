"""Statistical power of a canary analysis, before a rollout starts: the smallest regression that traffic would show."""

from bisect import bisect_left
from math import exp, inf, log, sqrt

import numpy as np

from understudy.core.canary.checks import needed_of
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.detectable_effect import (
    DetectionThreshold,
    Exposure,
    is_detectable,
    ratio_found_within,
    smallest_detectable,
)
from understudy.core.statistics.sequential_evidence import first_stage_alpha_share, half_normal_log_evidence
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

_SCORES = np.linspace(0.0, 40.0, 4_001).tolist()


def minimum_detectable_error_ratio(exposure: Exposure, policy: CanaryPolicy, error_rate: float) -> float:
    """Return the smallest error ratio that so much traffic would show; infinity without traffic."""
    return smallest_detectable(exposure, _threshold(policy, error_rate)) if exposure.challenger.sum() else inf


def shows_error_ratio(exposure: Exposure, policy: CanaryPolicy, error_rate: float, weight_percent: float) -> bool:
    """Return whether so much traffic would show the error ratio that a step of this weight asks about."""
    if not exposure.challenger.sum():
        return False
    asked = ratio_found_within(policy.detectable_ratio_at(weight_percent))
    return is_detectable(exposure, _threshold(policy, error_rate), asked)


def minimum_detectable_latency_ratio(exposure: Exposure, policy: CanaryPolicy, log_deviation: float) -> float:
    """Return the smallest ratio of typical latencies that would be rolled back by so many answers; infinity for none.

    At best: of calls that do not depend on each other, on pods that do not wander. Below ``lone_latency_ratio`` the
    typical latency alone rolls nothing back.
    """
    needed = needed_of(policy)[TYPICAL_LATENCY.name]
    sides = (float(exposure.champion.sum()), float(exposure.challenger.sum()))
    if not all(sides):
        return inf
    asked = needed - log(first_stage_alpha_share(has_restarts=False))

    def is_enough(t: float) -> bool:
        z = t_to_z(t, ANALYSIS_BUCKETS - 1)
        return half_normal_log_evidence(z, max(exposure.windows, 1), exp(-needed)) >= asked

    place = bisect_left(_SCORES, True, key=is_enough)
    if place == len(_SCORES):
        return inf
    error = log_deviation * sqrt(sum(1 / side for side in sides))
    return max(policy.lone_latency_ratio, policy.tolerated_latency_ratio * exp(min(_SCORES[place] * error, 100.0)))


def _threshold(policy: CanaryPolicy, error_rate: float) -> DetectionThreshold:
    return DetectionThreshold(
        needed_of(policy)[ERROR_RATE.name],
        policy.across_entities_alpha,
        policy.tolerated_error_ratio,
        max(error_rate, policy.error_rate_floor),
    )
