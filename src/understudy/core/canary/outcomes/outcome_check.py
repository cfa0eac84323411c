"""The checks of what happened after the answers: the outcomes that an operator named for a rollout, entity by entity.

Each can roll back. Outcomes come late, so a step waits only for those that the plan says hold it; whether the
challenger is better, an experiment says.
"""

from dataclasses import replace
from math import hypot, log, sqrt
from sys import float_info

from understudy.core.canary.decision import Check, Evidence, Unit, Worse
from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA, CheckInput, Comparison, Keys, evidence_row
from understudy.core.canary.outcome_limits import MAX_OUTCOMES, OutcomeLimit
from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.sample_size import welch_degrees_of_freedom
from understudy.core.statistics.sequential_evidence import (
    TUNED_WINDOWS,
    finite_exp,
    half_normal_log_evidence,
    mixture_radius,
)

OUTCOME = Check("outcome", "outcome", Unit.NUMBER, Worse.BEYOND_LIMIT, has_interval=True, is_drawn=False)
"""Of a plan that names one outcome alone."""
OUTCOMES = tuple(replace(OUTCOME, name=f"outcome_{number}") for number in range(1, MAX_OUTCOMES + 1))
"""Of a plan with a list: by their place in it, so that labels of metrics are few whatever outcomes are called."""
MIN_ENTITIES = 100
"""Of each arm, whose time for outcomes is over: the mean of fewer is not nearly normal."""
MAX_SIZE = 1e60
"""A mean or a variance beyond it is a mistake in the outcomes, and its powers overflow a float."""
TUNED_ENTITIES = 5_000
"""Of an arm of two equal ones: where the interval is narrowest for what it knows. Fixed beforehand."""

_NOTHING = Comparison(None, None, None, None, None)


def judge_outcome(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether the outcome is worse than tolerated, of a policy that names one alone."""
    return _judge(inputs, 0, OUTCOME, log_needed)


def judge_of_several(number: int, inputs: CheckInput, log_needed: float) -> Evidence:
    """Return the same of one of the outcomes that a policy lists, with its name."""
    row = _judge(inputs, number, OUTCOMES[number], log_needed)
    return row._replace(subject=inputs.policy.outcomes[number].name)


def tolerated_of(limit: OutcomeLimit, difference: Difference | None) -> float:
    """Return the ratio of the means that is tolerated: above 1 where a larger one is worse."""
    # Of means below 0 the larger ratio is the smaller mean.
    is_below_zero = difference is not None and difference.value_a < 0
    # Never 1 itself, which does not tell the side that is worse.
    tolerated = max(limit.limit_ratio, float_info.epsilon)
    return 1 + tolerated if limit.lower_is_better != is_below_zero else 1 - tolerated


def is_countable(difference: Difference | None) -> bool:
    """Whether so many entities were counted that something can be said."""
    return (
        difference is not None
        and _is_measurable(difference)
        and min(difference.effective_a, difference.effective_b) >= MIN_ENTITIES
    )


def windows_of(difference: Difference) -> float:
    """Return the windows that the evidence of so many entities is taken for."""
    return TUNED_WINDOWS * difference.entities_of_equal_arms / TUNED_ENTITIES


def _judge(inputs: CheckInput, number: int, check: Check, log_needed: float) -> Evidence:
    """Return a row whose values are the outcome's means, and whose change is the challenger's over the champion's.

    It is ``pass`` once the interval of the change is within the limit. There is no interval, and so no ``pass``, while
    the champion's mean may as well be 0: a share of that means nothing.
    """
    policy, asked = inputs.policy, inputs.policy.watched_outcomes[number]
    difference = inputs.outcome(number)
    limit = tolerated_of(asked, difference)
    if difference is None or not is_countable(difference):
        return evidence_row(inputs, check, _NOTHING, limit, Keys(0.0, log_needed, 0.0), is_enough=False)
    windows = windows_of(difference)
    tolerated = max(asked.limit_ratio, float_info.epsilon)
    # Beyond both, as if the champion's mean were above 0 and as if it were below: which it is need not be known.
    z = min(_z_beyond(difference, 1 + sign * tolerated, lower_is_better=asked.lower_is_better) for sign in (-1, 1))
    keys = Keys(
        half_normal_log_evidence(z, windows, policy.alpha),
        log_needed,
        half_normal_log_evidence(z, windows, policy.across_entities_alpha),
    )
    comparison = _comparison(difference, windows)
    low, high = comparison.change_low, comparison.change_high
    is_within = low is not None and high is not None and (high <= limit if limit > 1 else low >= limit)
    return evidence_row(inputs, check, comparison, limit, keys, is_enough=is_within)


def _is_measurable(difference: Difference) -> bool:
    """Whether floats can hold what is made of it: plain SQL may have written outcomes of any size."""
    sizes = (difference.value_a, difference.value_b, difference.variance_a, difference.variance_b)
    return all(abs(size) <= MAX_SIZE for size in sizes)


def _z_beyond(difference: Difference, limit: float, *, lower_is_better: bool) -> float:
    """Return how surely the challenger's mean is beyond ``limit`` times the champion's: a z-score, above 0 if it is."""
    own_a = limit**2 * difference.variance_a / difference.entities_a
    own_b = difference.variance_b / difference.entities_b
    pooled_error = sqrt(_pooled_variance(difference) * (limit**2 / difference.entities_a + 1 / difference.entities_b))
    error = max(sqrt(own_a + own_b), pooled_error)
    if error == 0:
        return 0.0
    beyond = difference.value_b - limit * difference.value_a
    degrees = welch_degrees_of_freedom(own_a, difference.effective_a - 1, own_b, difference.effective_b - 1)
    return t_to_z((beyond if lower_is_better else -beyond) / error, degrees)


def _pooled_variance(difference: Difference) -> float:
    freedom_a, freedom_b = difference.entities_a - 1, difference.entities_b - 1
    return (freedom_a * difference.variance_a + freedom_b * difference.variance_b) / (freedom_a + freedom_b)


def _comparison(difference: Difference, windows: float) -> Comparison:
    """Return the ratio of the means with bounds that hold at all analyses (delta method, on its logarithm)."""
    value_a, value_b = difference.value_a, difference.value_b
    if value_a == 0 or (value_a < 0 < value_b):
        return Comparison(value_a, value_b, None, None, None)
    ratio = value_b / value_a
    radius = mixture_radius(windows, INTERVAL_ALPHA)
    spread_a = sqrt(difference.variance_a / difference.entities_a) / abs(value_a)
    if ratio <= 0 or radius * spread_a >= 1:
        return Comparison(value_a, value_b, ratio, None, None)
    spread = hypot(spread_a, sqrt(difference.variance_b / difference.entities_b) / abs(value_b))
    return Comparison(value_a, value_b, ratio, *(finite_exp(log(ratio) + sign * radius * spread) for sign in (-1, 1)))
