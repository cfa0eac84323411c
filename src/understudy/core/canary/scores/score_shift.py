"""The check of scores: whether their mean has moved, either way."""

from math import log

from understudy.core.canary.decision import Check, Evidence, Unit, Worse
from understudy.core.canary.evidence.check_input import CheckInput, evidence_row
from understudy.core.canary.evidence.mean_checks import MeanCheck, comparison_of_means, mean_keys
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.mean_shift import Moments, mean_shift
from understudy.core.statistics.sequential_evidence import Processes
from understudy.core.windows.strata import Strata
from understudy.core.windows.window import BucketColumn

SCORE_SHIFT = Check("score_shift", "mean score", Unit.NUMBER, Worse.EITHER_SIDE, is_in_deviations=True)


def judge_score_shift(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether the mean score differs by more standard deviations of the champion's than the policy tolerates.

    A policy without that limit leaves the check out.
    """
    limit = inputs.policy.score_shift_limit or 0.0
    compared = scores_compared(inputs.strata, inputs.processes_of_stages())
    deviation = deviation_of(compared.moments)
    # Two one-sided checks: each needs twice the evidence, or what both need is one logarithm of 2 more.
    keys = max(mean_keys(inputs, compared, limit * deviation, sign, log_needed + log(2)) for sign in (1, -1))
    shift = mean_shift(compared.moments)
    comparison = comparison_of_means(shift, float, lambda difference: difference / deviation if deviation > 0 else 0.0)
    is_enough = shift is not None and inputs.has_enough_requests
    return evidence_row(inputs, SCORE_SHIFT, comparison, limit, keys, is_enough=is_enough)


def scores_compared(strata: Strata, processes: Processes) -> MeanCheck:
    """Return both versions' scores as a check of means takes them."""
    sides = (strata.champion, strata.challenger)
    columns = (BucketColumn.SCORE, BucketColumn.SCORE_CALLS)
    return MeanCheck(
        Moments(*(side[name] for side in sides for name in ("score_calls", "score", "score_squares"))),
        BucketSums(*(side.bucket(column) for side in sides for column in columns)),
        processes,
    )


def deviation_of(moments: Moments) -> float:
    """Return the standard deviation of the champion's values."""
    number, total, squares = (float(column.sum()) for column in moments[:3])
    return max(squares / number - (total / number) ** 2, 0.0) ** 0.5 if number > 0 else 0.0
