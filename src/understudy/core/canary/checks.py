"""The checks of a canary analysis, one row each: what is compared, how it is judged, and its share of alpha."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, log
from typing import Any, NamedTuple

from understudy.core.canary.challenger_drift import CHALLENGER_DRIFT
from understudy.core.canary.decision import Check, CheckState, Evidence, Unit
from understudy.core.canary.errors.error_rate import ERROR_RATE, judge_error_rate
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.judgements.judge_check import JUDGE, judge_by_judge
from understudy.core.canary.latency.latency_change import LATENCY_CHANGE, judge_latency_change
from understudy.core.canary.latency.slow_percentiles import SLOW_P99, SLOW_P999, judge_slow_p99, judge_slow_p999
from understudy.core.canary.latency.slow_tail import SLOW_TAIL, judge_slow_tail
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY, judge_typical_latency
from understudy.core.canary.limits import NEWEST_RULES, CanaryPolicy, Rules
from understudy.core.canary.metric_limits import metric_shares
from understudy.core.canary.metrics.metric_check import METRICS, judge_metric
from understudy.core.canary.outcome_limits import alpha_shares
from understudy.core.canary.outcomes.outcome_check import OUTCOME, OUTCOMES, judge_of_several, judge_outcome
from understudy.core.canary.reference_rule import P99_LATENCY
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.canary.scores.score_shift import SCORE_SHIFT, judge_score_shift


class CheckSpec(NamedTuple):
    """A check that can roll a challenger back."""

    check: Check
    judge: Callable[[CheckInput, float], Evidence]
    """From what is compared and the logarithm of the evidence that the check needs."""
    alpha_share: Callable[[CanaryPolicy], float | None]
    """Its share of the policy's alpha, before the shares of all checks in use are scaled to 1; ``None`` leaves the
    check out."""
    since_rules: Rules = Rules.STEPS
    """The first rules that have it: verdicts stored by earlier ones are judged again without it."""
    goes_by_clock: bool = False
    """Whether its row may be another one at another time, though the windows are the same: what it compares is known
    by a moment."""


def _share_of_several(number: int, policy: CanaryPolicy) -> float | None:
    if number >= len(policy.outcomes):
        return None
    return policy.outcome_share * alpha_shares(policy.outcomes)[number]


def _share_of_metric(number: int, policy: CanaryPolicy) -> float | None:
    if number >= len(policy.metrics):
        return None
    return policy.metric_share * metric_shares(policy.metrics)[number]


Checks = Callable[[CheckInput, Mapping[str, float]], Sequence[Evidence]]
"""What :func:`judged_checks` is: the rows, from what is compared and what each check in use needs."""
CHECKS = (
    CheckSpec(ERROR_RATE, judge_error_rate, lambda policy: policy.error_rate_share),
    CheckSpec(SLOW_TAIL, judge_slow_tail, lambda policy: policy.slow_tail_share),
    CheckSpec(SLOW_P99, judge_slow_p99, lambda policy: policy.slow_p99_share, Rules.TAILS),
    CheckSpec(SLOW_P999, judge_slow_p999, lambda policy: policy.slow_p999_share, Rules.TAILS),
    CheckSpec(TYPICAL_LATENCY, judge_typical_latency, lambda policy: policy.typical_latency_share),
    CheckSpec(LATENCY_CHANGE, judge_latency_change, lambda policy: policy.latency_change_share, Rules.DAYS),
    CheckSpec(
        SCORE_SHIFT,
        judge_score_shift,
        lambda policy: None if policy.score_shift_limit is None else policy.score_shift_share,
    ),
    CheckSpec(OUTCOME, judge_outcome, lambda policy: None if policy.outcome is None else policy.outcome_share),
    *(
        CheckSpec(check, partial(judge_of_several, number), partial(_share_of_several, number), Rules.OUTCOMES)
        for number, check in enumerate(OUTCOMES)
    ),
    *(
        CheckSpec(check, partial(judge_metric, number), partial(_share_of_metric, number), goes_by_clock=True)
        for number, check in enumerate(METRICS)
    ),
    CheckSpec(
        JUDGE,
        judge_by_judge,
        lambda policy: None if policy.judge is None else policy.judge_share,
        Rules.JUDGE,
        goes_by_clock=True,
    ),
)
"""In the order of the table that people read. The sample ratio spends its own alpha: it only says whether the others
mean anything."""
BY_CLOCK = frozenset(spec.check.name for spec in CHECKS if spec.goes_by_clock)
BY_NAME: Mapping[str, Check] = {
    check.name: check for check in (*(spec.check for spec in CHECKS), SAMPLE_RATIO, CHALLENGER_DRIFT, P99_LATENCY)
}
"""Every check that a row of evidence may name, that of the reference rule included."""


def needed_of(policy: CanaryPolicy, rules: Rules = NEWEST_RULES) -> dict[str, float]:
    """Return for the name of each check in use the logarithm of the evidence that it needs."""
    shares = {
        spec.check.name: share
        for spec in CHECKS
        if rules >= spec.since_rules and (share := spec.alpha_share(policy)) is not None
    }
    total = sum(shares.values())
    return {name: -log(policy.alpha * share / total) for name, share in shares.items()}


def judged_checks(inputs: CheckInput, needed: Mapping[str, float]) -> list[Evidence]:
    """Return the row of each check in use, given what each of them needs."""
    return [spec.judge(inputs, needed[spec.check.name]) for spec in CHECKS if spec.check.name in needed]


def evidence_from_json(document: Mapping[str, Any]) -> Evidence:
    """Return a check's row of evidence from what :meth:`understudy.core.canary.decision.Evidence.to_json` wrote.

    A ``change_high`` of ``null`` beside a ``change_low`` is an interval without an upper bound; a ``change`` of
    ``null`` is infinite where a rate is compared with none.

    Raises:
        LookupError: No check has that name, or a key is missing.
        TypeError: Other keys are there.
        ValueError: No state has that name.
    """
    row = Evidence(**{**document, "check": BY_NAME[document["check"]], "state": CheckState(document["state"])})
    if row.change_low is not None and row.change_high is None:
        row = row._replace(change_high=inf)
    has_none = row.check.unit is Unit.RATE and row.champion == 0 and bool(row.challenger)
    return row._replace(change=inf) if has_none and row.change is None else row
