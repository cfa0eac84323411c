"""The checks of the slowest answers: the champion's 99th and 99.9th percentiles in the hour before the rollout.

What slows down one call in a hundred hardly moves the typical latency or the share beyond the 95th percentile. The
champion's answers beyond its percentile are compared with the challenger's beyond a threshold 20 % higher, and only
what the typical latency does not explain counts.
"""

from math import log

from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.evidence.check_input import CheckInput, Comparison, Keys, evidence_row
from understudy.core.canary.evidence.rate_checks import RateCheck, judge_rate
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.sequential_evidence import Rates
from understudy.core.statistics.tail_shift import explained_by_shift, tail_slope

SLOW_P99 = Check("slow_p99", "slowest 1 %", Unit.RATE, is_drawn=False, needs_past=True, is_of_latency=True)
SLOW_P999 = Check("slow_p999", "slowest 0.1 %", Unit.RATE, is_drawn=False, needs_past=True, is_of_latency=True)
SUSPICION = log(20)
"""Logarithm of the evidence from which on it is worth its time to ask across entities and for the interval."""
_NOTHING = Comparison(None, None, None, None, None)


def judge_slow_p99(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more answers are beyond the champion's 99th percentile than tolerated."""
    return _judged(inputs, SLOW_P99, log_needed)


def judge_slow_p999(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more answers are beyond the champion's 99.9th percentile than tolerated."""
    return _judged(inputs, SLOW_P999, log_needed)


def slow_percentile(inputs: CheckInput, check: Check) -> RateCheck | None:
    """Compare the challenger's answers 20 % beyond one of the champion's percentiles with the champion's beyond it.

    ``None`` where the hour before the rollout did not say which latency the percentile is.
    """
    place, steps = (SLOW_P99, SLOW_P999).index(check), inputs.stage.tail_steps
    step = steps[place] if place < len(steps) else None
    if step is None:
        return None
    champion, challenger = inputs.strata.champion, inputs.strata.challenger
    bad_champion = champion.count_beyond(step)
    # Of the champion, how many are beyond the challenger's threshold says how steep the tail is there.
    slope = tail_slope(float(bad_champion.sum()), float(champion.count_beyond(step + 1).sum()))
    return RateCheck(
        check,
        Rates(bad_champion, champion.answered, challenger.count_beyond(step + 1), challenger.answered),
        lambda: BucketSums(
            champion.beyond(step), champion.bucket_answered, challenger.beyond(step + 1), challenger.bucket_answered
        ),
        inputs.processes_of_stages().after(inputs.warm),
        inputs.policy.tolerated_slow_ratio,
        explained=None if inputs.latency_shift is None else explained_by_shift(inputs.latency_shift, slope),
    )


def _judged(inputs: CheckInput, check: Check, log_needed: float) -> Evidence:
    compared = slow_percentile(inputs, check)
    if compared is None:
        limit = inputs.policy.tolerated_slow_ratio
        return evidence_row(inputs, check, _NOTHING, limit, Keys(0.0, log_needed, 0.0), is_enough=False)
    is_enough = inputs.has_enough_requests and bool(compared.rates.bad_champion.any())
    return judge_rate(inputs, compared, log_needed, is_enough=is_enough, suspicion=SUSPICION)
