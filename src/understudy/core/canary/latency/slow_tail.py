"""The check of tail latency: answers slower than a threshold that was fixed before the rollout started.

When all answers take longer for a while, because the pods of one side do, more of them are beyond any threshold. That
is the typical latency's to judge, which knows how far pods wander; here only what is beyond it counts.
"""

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.evidence.rate_checks import RateCheck, judge_rate
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.sequential_evidence import Rates
from understudy.core.statistics.tail_shift import explained_by_shift, tail_slope
from understudy.core.windows.window import BucketColumn

SLOW_TAIL = Check("slow_tail", "slow answers", Unit.RATE, is_of_latency=True)


def slow_tail(inputs: CheckInput) -> RateCheck:
    """Compare the challenger's answers above 1.2 τ with the champion's above τ: is its tail 20 % slower?"""
    champion, challenger = inputs.strata.champion, inputs.strata.challenger
    return RateCheck(
        SLOW_TAIL,
        Rates(champion["slow_low"], champion.answered, challenger["slow_high"], challenger.answered),
        lambda: BucketSums(
            champion.bucket(BucketColumn.SLOW_LOW),
            champion.bucket_answered,
            challenger.bucket(BucketColumn.SLOW_HIGH),
            challenger.bucket_answered,
        ),
        inputs.processes_of_stages().after(inputs.warm),
        inputs.policy.tolerated_slow_ratio,
    )


def judge_slow_tail(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more answers are slow than tolerated, and than the typical latency explains."""
    compared = slow_tail(inputs)
    if inputs.latency_shift is not None:
        champion = inputs.strata.champion
        slope = tail_slope(float(champion["slow_low"].sum()), float(champion["slow_high"].sum()))
        compared = compared._replace(explained=explained_by_shift(inputs.latency_shift, slope))
    return _judged(inputs, compared, log_needed)


def slow_tail_beside(typical: Evidence, row: Evidence, inputs: CheckInput, log_needed: float) -> Evidence:
    """Return the row of slow answers beside that of the typical latency.

    Where that fails, a difference between pods no longer explains it; then all slow answers count, and may be the
    second check that it takes to roll back a challenger which is a little slower.
    """
    if typical.state is not CheckState.FAIL or row.state is CheckState.FAIL:
        return row
    return _judged(inputs, slow_tail(inputs), log_needed)


def _judged(inputs: CheckInput, compared: RateCheck, log_needed: float) -> Evidence:
    # Without a threshold no answer of the champion's is slow, and nothing can be said of the challenger's.
    is_enough = inputs.has_enough_requests and bool(compared.rates.bad_champion.any())
    return judge_rate(inputs, compared, log_needed, is_enough=is_enough)
