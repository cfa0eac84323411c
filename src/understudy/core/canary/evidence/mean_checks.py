"""What the checks of means have in common: evidence of a difference of means, and the figures that show it."""

from collections.abc import Callable
from math import exp
from typing import NamedTuple

import numpy as np

from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA, CheckInput, Comparison, Keys
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.mean_shift import Moments, Shift, shift_z
from understudy.core.statistics.pod_noise import NO_NOISE, PodNoise
from understudy.core.statistics.sequential_evidence import Processes, half_normal_log_evidence, mixture_radius


class MeanCheck(NamedTuple):
    """A mean: what is averaged, and what may be concluded from it."""

    moments: Moments
    buckets: BucketSums
    processes: Processes
    noise: PodNoise = NO_NOISE
    """How far each side's mean wanders by itself."""


def mean_keys(inputs: CheckInput, compared: MeanCheck, limit: float, sign: int, log_needed: float) -> Keys:
    """Return both keys, made of one z-score of each process, the least significant; only what they need differs."""
    processes = compared.processes
    scores, windows = shift_z(compared.moments, compared.buckets, limit, processes.firsts, sign, noise=compared.noise)
    against_chance, across_entities = (
        half_normal_log_evidence(scores, np.maximum(windows, 1.0), alpha)
        for alpha in (exp(-log_needed), inputs.policy.across_entities_alpha)
    )
    return Keys(processes.together(against_chance), log_needed, processes.together(across_entities))


def comparison_of_means(
    shift: Shift | None, value: Callable[[float], float], change: Callable[[float], float]
) -> Comparison:
    """Return a shift as people read it, given what a mean and a difference of means are shown as."""
    if shift is None:
        return Comparison(None, None, None, None, None)
    radius = shift.standard_error * mixture_radius(shift.windows, INTERVAL_ALPHA)
    bounds = (shift.difference - radius, shift.difference + radius)
    return Comparison(value(shift.champion), value(shift.challenger), change(shift.difference), *map(change, bounds))
