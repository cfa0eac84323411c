"""The check of a judge: does the challenger lose more often against the champion than it may?

A judge sees both versions' answers to the same inputs and says which is better, or gives each 0 to 1. Who of the two
stands first is drawn by lot, so a judge that prefers a place adds noise and no bias. One that cannot be asked takes
nothing back and lets nothing pass.
"""

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit, Worse
from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA, CheckInput, Comparison, Keys, evidence_row
from understudy.core.canary.judge_limits import MICROS, JudgeLimit
from understudy.core.canary.judgement_records import FAILING_QUESTIONS, Judgements, JudgeOutcome, outcome_of
from understudy.core.canary.messages import unproven_words
from understudy.core.statistics.bounded_differences import clustered_loss_z, log_loss_evidence
from understudy.core.statistics.sequential_evidence import half_normal_log_evidence, mixture_radius, processes_of

JUDGE = Check("judge", "win rate by judge", Unit.RATE, Worse.BEYOND_LIMIT, has_interval=True, is_drawn=False)
MIN_BOTH_WAYS = 20
"""Pairs in both orders from which on a judge that contradicts itself in nearly all of them is told."""
_BLIND_RATIO = 0.95
_BATCH = 10
"""Judgements that count as a window for mixtures over z, which are then sharpest at 600 of them."""
_MIN_RATIO = 1e-9
_NOTHING = Comparison(None, None, None, None, None)
_PROBLEMS = {
    JudgeOutcome.UNKNOWN_JUDGE: "UNDERSTUDY_JUDGES of the monitor that leads has no judge {name}",
    JudgeOutcome.DOWN: "{name} cannot be reached",
    JudgeOutcome.SLOW: "{name} does not answer in time",
    JudgeOutcome.REDIRECTS: "{name} answers with a redirect, which is not followed",
    JudgeOutcome.DENIED: "{name} refuses the monitor's credentials",
    JudgeOutcome.FAILED: "{name} answers with an error",
    JudgeOutcome.HUGE: "{name} answers with more than is read",
    JudgeOutcome.UNREADABLE: "{name} does not answer as a judge does",
    JudgeOutcome.OTHER_ID: "{name} answers other questions than it is asked",
}
_IDLE = {
    JudgeOutcome.NO_INPUTS: "no inputs of the champion's calls are logged",
    JudgeOutcome.NOT_SENT_AGAIN: "no logged call can be sent to the challenger again: not all of its inputs are logged",
    JudgeOutcome.NO_ANSWERS: "the challenger's model server gives the monitor no answers",
    JudgeOutcome.ALL_ASKED: "all logged calls were judged",
    JudgeOutcome.MONEY_SPENT: "the money of this day is spent",
    JudgeOutcome.FULL: "no more are asked in one rollout",
}


def judge_by_judge(inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether the challenger's win rate is below what is tolerated of the champion's, ties half.

    It is ``pass`` once there are enough judgements, the judge answers, and nothing looks worse.
    """
    limit = _limit_of(inputs)
    seen = inputs.judgements.until(inputs.now)
    unreadable, lacking = unreadable_words(seen, limit), _lacking(seen, limit)
    keys = _keys(inputs, seen, limit, log_needed)
    if unreadable or lacking:
        keys = keys._replace(against_chance=0.0, across_entities=0.0)
    row = evidence_row(inputs, JUDGE, _comparison(seen), _tolerated_ratio(limit), keys, is_enough=not lacking)
    row = row._replace(subject=limit.name)
    if unreadable:
        return row._replace(state=CheckState.INVALID)
    return row._replace(state=CheckState.TOO_EARLY) if lacking else row


def judge_missing(inputs: CheckInput, rows: Sequence[Evidence]) -> list[str]:
    """Return in words why the judge holds the step: it cannot be asked, has not said enough, or its win rate is low."""
    row = next((row for row in rows if row.check is JUDGE and row.state is not CheckState.OK), None)
    if row is None:
        return []
    if row.state is CheckState.UNPROVEN:
        return [unproven_words(row)]
    limit = _limit_of(inputs)
    seen = inputs.judgements.until(inputs.now)
    if unreadable := unreadable_words(seen, limit):
        return [f"the judge cannot be relied on, which holds the step: {unreadable}"]
    return [f"the judge has not said enough, which holds the step: {_lacking(seen, limit)}"]


def unreadable_words(seen: Judgements, limit: JudgeLimit) -> str:
    """Say why a judge's words cannot be used now; nothing where they can."""
    if _outcome(seen.idle) is JudgeOutcome.UNKNOWN_JUDGE:
        return _PROBLEMS[JudgeOutcome.UNKNOWN_JUDGE].format(name=limit.name)
    if seen.failing >= FAILING_QUESTIONS:
        words = _PROBLEMS.get(_outcome(seen.problem), _PROBLEMS[JudgeOutcome.UNREADABLE])
        return f"{words.format(name=limit.name)} ({seen.failing} questions)"
    if seen.both_ways >= MIN_BOTH_WAYS and seen.contradicted >= _BLIND_RATIO * seen.both_ways:
        same = f"{seen.contradicted} of {seen.both_ways} pairs that were asked in both orders"
        return f"{limit.name} prefers the same place in {same}, whatever stands there"
    return ""


def idle_words(seen: Judgements) -> str:
    """Say why nothing is asked at the moment; nothing where something is."""
    return _IDLE.get(_outcome(seen.idle), "")


def position_words(seen: Judgements) -> str:
    """Say how a judge's preference for a place was measured; nothing before it has answered."""
    if not seen.answered:
        return ""
    points = f"the answer that stands first gets {100 * seen.first_points / seen.answered:.3g} % of the points"
    if not seen.both_ways:
        return points
    return f"{points}; {seen.contradicted} of {seen.both_ways} pairs asked in both orders are contradicted"


def judge_words(seen: Judgements, limit: JudgeLimit) -> str:
    """Say in one line what a judge was asked, what it cost, how much the place counts, and why it is not asked on."""
    counted = f"judge {limit.name}: {len(seen.times):,} judgements of {seen.asked:,} questions"
    parts = [f"{counted} and {seen.equal:,} pairs of equal answers" if seen.equal else counted]
    parts += [f"{seen.spent_micros / MICROS:,.2f} spent"] if seen.spent_micros else []
    parts += filter(None, [position_words(seen), unreadable_words(seen, limit) or idle_words(seen)])
    return "; ".join(parts)


def _outcome(word: str) -> JudgeOutcome:
    return outcome_of(word) or JudgeOutcome.UNREADABLE


def _limit_of(inputs: CheckInput) -> JudgeLimit:
    limit = inputs.policy.judge
    if limit is None:
        raise ValueError("canary policy: judge: expected one, its check is in use")
    return limit


def _lacking(seen: Judgements, limit: JudgeLimit) -> str:
    if len(seen.times) >= limit.min_judgements:
        return ""
    why = idle_words(seen)
    return f"{len(seen.times):,} of {limit.min_judgements:,} judgements{why and f', {why}'}"


def _tolerated_ratio(limit: JudgeLimit) -> float:
    # Never 1 itself, which does not tell the side that is worse.
    return 1 - max(limit.limit_ratio, _MIN_RATIO)


def _keys(inputs: CheckInput, seen: Judgements, limit: JudgeLimit, log_needed: float) -> Keys:
    """Return both keys: bets that the challenger loses more than it may, and the same over analysis buckets."""
    ratio = _tolerated_ratio(limit)
    tolerated = (1 - ratio) / (1 + ratio)
    firsts = [int(np.searchsorted(seen.times, start)) for start in inputs.stage.starts]
    processes = processes_of(firsts, inputs.stage.planned)
    differences, buckets = np.array(seen.differences, np.float64), np.array(seen.buckets, np.int64)
    against_chance = processes.together(log_loss_evidence(differences, tolerated, processes.firsts))
    scores = clustered_loss_z(differences, buckets, tolerated, processes.firsts)
    counts = np.maximum(len(differences) - processes.firsts, 1) / _BATCH
    across = half_normal_log_evidence(scores, counts, inputs.policy.across_entities_alpha)
    return Keys(against_chance, log_needed, processes.together(across))


def _comparison(seen: Judgements) -> Comparison:
    """Return both win rates and their ratio, with bounds that hold at all looks together."""
    count = len(seen.differences)
    if count == 0:
        return _NOTHING
    differences = np.array(seen.differences, np.float64)
    mean = float(differences.mean())
    sides = (1 - mean) / 2, (1 + mean) / 2
    if count < _BATCH:
        return Comparison(*sides, _ratio(mean), None, None)
    # One more judgement of either kind: of nine losses and no win the spread is not 0.
    error = sqrt((float(np.square(differences - mean).sum()) + 1) / count) / sqrt(count)
    radius = mixture_radius(count / _BATCH, INTERVAL_ALPHA) * error
    return Comparison(*sides, _ratio(mean), _ratio(max(mean - radius, -1.0)), _ratio(min(mean + radius, 1.0)))


def _ratio(mean: float) -> float:
    """Return the ratio of the win rates, given the mean difference."""
    return (1 + mean) / (1 - mean) if mean < 1 else inf
