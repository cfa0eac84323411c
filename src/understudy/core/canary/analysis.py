"""Is the challenger worse than the champion? A pure function of windows, limits and the time.

The evidence is legal at every look, so the monitor looks as often as it likes. It takes two keys to roll back, one
against chance and one against entities that are unlike each other, and the champion's calls of the same windows are the
only ones that are compared with.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from understudy.core.canary import messages as words
from understudy.core.canary.check_input import Keys, Look
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence, Verdict
from understudy.core.canary.early_failure import first_calls
from understudy.core.canary.limits import CanaryPolicy, Stage, needed_of
from understudy.core.canary.mean_checks import judge_score_shift, judge_typical_latency
from understudy.core.canary.outcome_check import judge_outcome
from understudy.core.canary.rate_checks import error_rate, judge_rate, judge_sample_ratio, slow_tail
from understudy.core.canary.recent_regression import suspicions
from understudy.core.statistics.detectable_effect import Asked, Exposure, missing_trials, smallest_detectable
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.sequential_evidence import MAX_RESTARTS, Restarts, first_stake
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import Window


def evaluate(
    windows: Sequence[Window], policy: CanaryPolicy, stage: Stage, now: float, outcome: Difference | None = None
) -> Decision:
    """Return the verdict on a rollout.

    Args:
        windows: Of all shippers since the rollout began; those of other rollouts and of shadows are left out.
        policy: The limits of the stage.
        stage: Where the rollout stands.
        now: Seconds since the epoch; a window counts from ``policy.watermark_seconds`` after its end on, and at once
            for a challenger that fails nearly everybody from its first calls on.
        outcome: Challenger less champion of ``policy.outcome``, as of a moment that is not long ago.

    Returns:
        ``ROLL_BACK`` when a check fails with both keys; ``INVALID`` when the traffic is not split as the policy says;
        ``ADVANCE`` when the stage's time is over, the regression that the policy asks for would have been seen, and the
        last minute looks like the time before;
        ``HOLD`` otherwise, no traffic included, with what is missing.

    Source:
        Statistics page, §2 and §8; each number of evidence in :mod:`understudy.core.statistics.sequential_evidence`.
    """
    return judge(stratify(windows, stage.rollout_id), policy, stage, now, outcome)


def judge(
    strata: Strata, policy: CanaryPolicy, stage: Stage, now: float, outcome: Difference | None = None
) -> Decision:
    """Return what :func:`evaluate` returns, for windows that are already side by side."""
    needed = needed_of(policy)
    begun = look = _look(strata.begun_by(now), policy, stage)
    keys = first_calls(look, error_rate(look), needed[Check.ERROR_RATE], now)
    if keys is None:
        look = _look(strata.until(now - policy.watermark_seconds), policy, stage)
    seen = _seen(look, needed[Check.ERROR_RATE])
    evidence = _evidence(look, needed, seen, outcome, keys)
    split = evidence[-1]
    failing = [row for row in evidence if row.state is CheckState.FAIL]
    needs_human = now - stage.starts[-1] >= policy.maximum_seconds
    if any(_rolls_back(row, policy, failing) for row in failing):
        # Before anything is said of the split: taking a failing challenger back costs a wait, leaving it costs callers.
        return Decision(Verdict.ROLL_BACK, words.roll_back_reason(stage, now, failing), evidence)
    no_traffic = words.traffic_words(look.requests, stage)
    if split.state is CheckState.INVALID and no_traffic is None:
        reason = words.invalid_reason(stage, now, split)
        return Decision(Verdict.INVALID, reason, evidence, needs_human=needs_human)
    missing = [no_traffic] if no_traffic is not None else _missing(look, now, evidence, seen)
    missing = missing or _suspicious(begun, now)
    if missing:
        reason = words.hold_reason(missing, needs_human=needs_human)
        return Decision(Verdict.HOLD, reason, evidence, seen.missing_requests, needs_human)
    return Decision(Verdict.ADVANCE, words.advance_reason(stage, now, evidence, seen.ratio), evidence)


class _Seen(NamedTuple):
    """What the traffic so far could have shown."""

    ratio: float
    """The smallest error ratio that would have been found."""
    asked_ratio: float
    missing_requests: int | None
    """Challenger requests until ``asked_ratio`` would be found; ``None`` if it would be by now, or without traffic."""


def _look(strata: Strata, policy: CanaryPolicy, stage: Stage) -> Look:
    firsts = tuple(strata.first_at(start) for start in stage.starts)
    warm = strata.first_at(stage.starts[0] + policy.warm_up_seconds)
    return Look(strata, policy, stage, firsts, warm, _restarts(strata, stage))


def _restarts(strata: Strata, stage: Stage) -> Restarts | None:
    """Return which processes have begun within stages: by the clock, whatever the windows hold."""
    if stage.restart_seconds is None:
        return None
    passed = float(strata.starts[-1]) - stage.starts[0] if len(strata.starts) else 0.0
    begun = max(0, int(passed // stage.restart_seconds))
    newest = np.arange(max(0, begun - MAX_RESTARTS), begun, dtype=np.float64) + 1
    return Restarts(strata.firsts_at(stage.starts[0] + stage.restart_seconds * newest), begun)


def _seen(look: Look, log_needed: float) -> _Seen:
    compared = error_rate(look).rates
    asked_ratio = look.policy.detectable_ratio_at(look.stage.weight_percent)
    if look.firsts[0] == len(compared.champion):
        return _Seen(float("inf"), asked_ratio, None)
    borders = sorted({first for first in look.firsts if first < len(compared.champion)})
    champion, challenger = (np.add.reduceat(column, borders) for column in (compared.champion, compared.challenger))
    exposure = Exposure(champion, challenger, len(compared.champion) - borders[0])
    trials, requests = float(challenger.sum()), float(look.strata.challenger["calls"].sum())
    if not (trials and champion.sum()):
        return _Seen(float("inf"), asked_ratio, None)
    rate = max(float(compared.bad_champion.sum() / champion.sum()), look.policy.error_rate_floor)
    asked = Asked(
        log_needed,
        look.policy.across_entities_alpha,
        look.policy.tolerated_error_ratio,
        rate,
        first_stake(has_restarts=look.restarts is not None),
    )
    ratio = smallest_detectable(exposure, asked)
    missing = 0 if ratio <= asked_ratio else missing_trials(exposure, asked, asked_ratio)
    return _Seen(ratio, asked_ratio, round(missing * requests / trials) or None)


def _evidence(
    look: Look, needed: dict[str, float], seen: _Seen, outcome: Difference | None, keys: Keys | None
) -> tuple[Evidence, ...]:
    slow = slow_tail(look)
    # Without a threshold no answer of the champion's is slow, and nothing can be said of the challenger's.
    is_enough = look.has_enough_requests and bool(slow.rates.bad_champion.any())
    rows = [
        judge_rate(
            look, error_rate(look), needed[Check.ERROR_RATE], is_enough=seen.ratio <= seen.asked_ratio, keys=keys
        ),
        judge_rate(look, slow, needed[Check.SLOW_TAIL], is_enough=is_enough),
        judge_typical_latency(look, needed[Check.TYPICAL_LATENCY]),
    ]
    if look.policy.score_shift_limit is not None:
        rows.append(judge_score_shift(look, look.policy.score_shift_limit, needed[Check.SCORE_SHIFT]))
    if look.policy.outcome is not None:
        rows.append(judge_outcome(look, outcome, needed[Check.OUTCOME]))
    return (*rows, judge_sample_ratio(look))


def _rolls_back(row: Evidence, policy: CanaryPolicy, failing: Sequence[Evidence]) -> bool:
    """Whether a failing check is enough: the typical latency alone has to be much worse."""
    if row.check is not Check.TYPICAL_LATENCY or len(failing) > 1:
        return True
    return row.change is not None and row.change >= policy.lone_latency_ratio


def _missing(look: Look, now: float, evidence: Sequence[Evidence], seen: _Seen) -> list[str]:
    """Return in words what keeps the rollout from advancing."""
    policy, stage = look.policy, look.stage
    parts = [words.lone_latency_words(row, policy.lone_latency_ratio) for row in evidence if _holds(row)]
    parts += [words.few_entities_words(row) for row in evidence if _is_of_few_entities(row)]
    parts += [words.unproven_words(row) for row in evidence if _is_nearly_proven(row)]
    if seen.ratio > seen.asked_ratio:
        parts.append(words.detectable_words(seen.ratio, seen.asked_ratio, seen.missing_requests or 0))
    requests = int(look.strata.challenger["calls"][look.firsts[-1] :].sum())
    entities = look.strata.arrivals.challenger_entities
    if requests < policy.min_requests:
        parts.append(f"{requests:,} of {policy.min_requests:,} challenger requests at {stage.weight_percent:g} %")
    if entities < policy.min_entities:
        parts.append(f"{entities:,} of {policy.min_entities:,} challenger entities")
    dwell = words.dwell_words(policy, stage, now)
    return [*parts, dwell] if dwell is not None else parts


def _suspicious(begun: Look, now: float) -> list[str]:
    """Return in words what looks worse since a minute ago; verdicts of earlier releases did not ask."""
    if begun.stage.restart_seconds is None:
        return []
    return [words.suspicion_words(found.check, found.champion, found.challenger) for found in suspicions(begun, now)]


def _holds(row: Evidence) -> bool:
    return row.state is CheckState.FAIL


def _is_nearly_proven(row: Evidence) -> bool:
    """Whether the interval says "worse" and other entities would say the same: no moment to add traffic."""
    across, needed = row.evidence_across_entities or 0.0, row.evidence_across_entities_needed or 1.0
    return row.state is CheckState.UNPROVEN and across >= needed


def _is_of_few_entities(row: Evidence) -> bool:
    return row.state is CheckState.TOO_EARLY and (row.evidence or 0.0) >= (row.evidence_needed or 1.0)
