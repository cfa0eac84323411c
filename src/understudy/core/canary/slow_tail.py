"""The check of tail latency: answers slower than a threshold that was fixed before the rollout started."""

from understudy.core.canary.check_input import CheckInput
from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.rate_checks import RateCheck, judge_rate
from understudy.core.statistics.cluster_test import BucketSums
from understudy.core.statistics.sequential_evidence import Rates
from understudy.core.windows.window import BucketColumn

SLOW_TAIL = Check("slow_tail", "slow answers", Unit.RATE)


def slow_tail(inputs: CheckInput) -> RateCheck:
    """Compare the challenger's answers above 1.2 τ with the champion's above τ: is its tail 20 % slower?"""
    champion, challenger = inputs.strata.champion, inputs.strata.challenger
    return RateCheck(
        SLOW_TAIL,
        Rates(champion["slow_low"], champion.answered, challenger["slow_high"], challenger.answered),
        BucketSums(
            champion.bucket(BucketColumn.SLOW_LOW),
            champion.bucket_answered,
            challenger.bucket(BucketColumn.SLOW_HIGH),
            challenger.bucket_answered,
        ),
        inputs.processes_of_stages().after(inputs.warm),
        inputs.policy.tolerated_slow_ratio,
    )


def judge_slow_tail(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether more answers are slow than tolerated."""
    compared = slow_tail(inputs)
    # Without a threshold no answer of the champion's is slow, and nothing can be said of the challenger's.
    is_enough = inputs.has_enough_requests and bool(compared.rates.bad_champion.any())
    return judge_rate(inputs, compared, log_needed, is_enough=is_enough)
