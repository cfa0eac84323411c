"""The check of typical latency: the geometric mean of the answered calls."""

from math import exp, log

import numpy as np

from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.evidence.check_input import CheckInput, evidence_row
from understudy.core.canary.evidence.mean_checks import MeanCheck, comparison_of_means, mean_keys
from understudy.core.canary.limits import Rules
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.mean_shift import Moments, mean_shift
from understudy.core.statistics.pod_noise import NO_NOISE, Blocks, PodNoise, blocks_of, pod_noise
from understudy.core.statistics.sequential_evidence import finite_exp
from understudy.core.windows.window import BucketColumn

TYPICAL_LATENCY = Check("typical_latency", "typical latency", Unit.SECONDS, is_of_latency=True)


def judge_typical_latency(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether the geometric mean of the latency is higher than tolerated."""
    compared = _latency(inputs)
    limit_ratio = inputs.policy.tolerated_latency_ratio
    keys = mean_keys(inputs, compared, log(limit_ratio), 1, log_needed)
    shift = mean_shift(compared.moments.cut(compared.processes.first), compared.noise)
    comparison = comparison_of_means(shift, lambda mean: exp(mean) / 1e6, finite_exp)
    is_enough = shift is not None and inputs.has_enough_requests
    return evidence_row(inputs, TYPICAL_LATENCY, comparison, limit_ratio, keys, is_enough=is_enough)


def _latency(inputs: CheckInput) -> MeanCheck:
    sides = (inputs.strata.champion, inputs.strata.challenger)
    return MeanCheck(
        latency_moments(inputs),
        BucketSums(
            *(column for side in sides for column in (side.bucket(BucketColumn.LOG_LATENCY), side.bucket_answered))
        ),
        inputs.processes_of_stages().after(inputs.warm),
        latency_noise(inputs),
    )


def latency_moments(inputs: CheckInput) -> Moments:
    """Return number, sum and sum of squares of the logarithm of the latency, of both sides in each window."""
    sides = (inputs.strata.champion, inputs.strata.challenger)
    return Moments(
        *(column for side in sides for column in (side.answered, side["log_latency"], side["log_latency_squares"]))
    )


def latency_noise(inputs: CheckInput) -> PodNoise:
    """Return how far the champion's pods wander: in the hour before the rollout, and since."""
    if inputs.stage.rules < Rules.DAYS:
        return NO_NOISE
    side = inputs.strata.champion
    since = blocks_of(inputs.strata.starts, side.answered, side["log_latency"], side["log_latency_squares"])
    before = np.array(inputs.stage.champion_before, np.float64).reshape(-1, 3).T
    blocks = Blocks(*(np.append(*columns) for columns in zip(before, since, strict=True)))
    return pod_noise(blocks, moderates=inputs.stage.rules >= Rules.MODERATED)
