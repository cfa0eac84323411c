"""Canary analysis: is the challenger worse than the champion? A pure function of windows, limits and the time.

The evidence is sequential (anytime-valid), so the monitor analyses as often as it likes. A rollback takes two keys, one
against chance and one against entities that differ from each other, and the challenger is only compared with the
champion's calls of the same windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from understudy.core.canary import messages as words
from understudy.core.canary.challenger_drift import drift_reason, drift_row
from understudy.core.canary.checks import Checks, judged_checks, needed_of
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.entities.worst_entities import EntityCounts, entities_words, failing_entities
from understudy.core.canary.errors.early_failure import early_failure
from understudy.core.canary.errors.error_rate import ERROR_RATE, own_error_rate
from understudy.core.canary.evidence.check_input import CheckInput, Metrics, Outcomes
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.judgements.judge_check import JUDGE, judge_missing
from understudy.core.canary.latency.cold_start import ColdStart, cold_start
from understudy.core.canary.latency.slow_tail import SLOW_TAIL, slow_tail_beside
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.canary.metrics.metric_check import is_metric, metrics_missing
from understudy.core.canary.outcomes.held_outcomes import is_held_by_outcome, outcomes_missing
from understudy.core.canary.power.detectability import Detectability, detectability
from understudy.core.canary.recent_regression import recent_regressions
from understudy.core.canary.sample_ratio_check import judge_sample_ratio
from understudy.core.canary.slices.failing_slices import SliceCounts, failing_slices, slices_words
from understudy.core.drift.beside_champion import BesideChampion
from understudy.core.statistics.sequential_evidence import (
    FREQUENT_RESTARTS,
    MAX_RESTARTS,
    RESTART_SCHEDULES,
    FloatArray,
    Restarts,
    RestartSchedule,
    even_schedules,
    log_rate_evidence,
    rate_gains,
)
from understudy.core.statistics.tail_shift import recent_shift
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import Window


def evaluate(  # noqa: PLR0917 - as :func:`judge` has them
    windows: Sequence[Window],
    policy: CanaryPolicy,
    stage: Stage,
    now: float,
    outcomes: Outcomes = (),
    metrics: Metrics = (),
    judgements: Judgements = NO_JUDGEMENTS,
) -> Decision:
    """Return the verdict on a rollout.

    Args:
        windows: Of all shippers since the rollout began; those of other rollouts and of shadows are left out.
        policy: The limits of the stage.
        stage: Where the rollout stands.
        now: Seconds since the epoch; a window counts from ``policy.watermark_seconds`` after its end on, and at once
            for a challenger that fails nearly every entity from its first calls on.
        outcomes: Of ``policy.watched_outcomes``, as of a moment that is not long ago.
        metrics: Of ``policy.metrics``, likewise.
        judgements: Of ``policy.judge``, likewise.

    Returns:
        ``ROLL_BACK`` when a check fails with both keys; ``INVALID`` when the traffic is not split as the policy says;
        ``ADVANCE`` when the stage's time is over, the regression that the policy asks for would have been seen, the
        outcomes that hold a step are within their margins, and there is no recent regression; ``HOLD`` otherwise, no
        traffic included, with what is missing.

    Source:
        Statistics page, §2 and §8; each number of evidence in :mod:`understudy.core.statistics.sequential_evidence`.
    """
    strata = stratify(windows, stage.rollout_id)
    return judge(strata, policy, stage, now, outcomes, metrics=metrics, judgements=judgements)


def judge(
    strata: Strata,
    policy: CanaryPolicy,
    stage: Stage,
    now: float,
    outcomes: Outcomes = (),
    *,
    metrics: Metrics = (),
    judgements: Judgements = NO_JUDGEMENTS,
    entities: EntityCounts | None = None,
    slices: SliceCounts | None = None,
    drift: Sequence[BesideChampion] = (),
    are_shared_errors_told: bool = False,
    checks: Checks = judged_checks,
) -> Decision:
    """Return what :func:`evaluate` returns, for windows that are already side by side.

    Entities that the challenger fails, of those in ``entities``, hold the step; so do slices for which it does worse,
    of those in ``slices``, unless the policy says something else. So do errors that the champion had as well, where a
    check would fail with them, until an operator was told. ``drift`` from the champion takes it back. ``checks`` comes
    to the same rows as :func:`judged_checks`, and may know them from the analysis before.
    """
    needed = needed_of(policy, stage.rules)
    begun, inputs, detectable, start = compared_at(strata, policy, stage, now, needed[ERROR_RATE.name])
    inputs = inputs._replace(outcomes=outcomes, metrics=metrics, judgements=judgements, now=now)
    split = judge_sample_ratio(inputs)
    rows = _beside_each_other(inputs, checks(inputs, needed), needed)
    if start.warming is not None and not _fails_more(inputs, needed[ERROR_RATE.name]):
        rows = _held_while_warming(rows)
    evidence = (*rows, split)
    failing = [row for row in evidence if row.state is CheckState.FAIL]
    place = words.place_of(stage, now)
    needs_human = now - stage.starts[-1] >= policy.maximum_seconds
    if any(_rolls_back(row, policy, failing) for row in failing):
        # Before the split is judged: rolling a failing challenger back costs a wait, keeping it costs callers.
        return Decision(Verdict.ROLL_BACK, words.roll_back_reason(failing), evidence, place=place)
    if drift:
        evidence = (*evidence, drift_row(drift, inputs.requests))
        return Decision(Verdict.ROLL_BACK, drift_reason(drift), evidence, place=place)
    no_traffic = words.traffic_words(inputs.requests, stage)
    if split.state is CheckState.INVALID and no_traffic is None:
        reason = words.invalid_reason(split)
        return Decision(Verdict.INVALID, reason, evidence, needs_human=needs_human, place=place)
    held = None if are_shared_errors_told else _held_by_shared_errors(inputs, rows, needs_human=needs_human)
    if held is None and entities is not None:
        held = _held_by_entities(inputs, entities, needs_human=needs_human)
    if held is None and slices is not None and (worse := _worse_in_slices(slices, policy, needs_human=needs_human)):
        held = replace(worse, place=place)
    if held is not None:
        return replace(held, evidence=evidence, missing_requests=detectable.missing_requests)
    missing = _unjudged(inputs, no_traffic) if no_traffic else _missing(inputs, now, evidence, detectable, start)
    missing = missing or _recently_regressed(begun, now)
    if missing:
        reason = words.hold_reason(missing, needs_human=needs_human)
        lacks = detectable.missing_requests
        return Decision(Verdict.HOLD, reason, evidence, lacks, needs_human, missing=tuple(missing))
    reason = words.advance_reason(evidence, detectable.ratio, policy.error_rate_floor)
    return Decision(Verdict.ADVANCE, reason, evidence, place=place)


class Compared(NamedTuple):
    """What a verdict is about."""

    begun: CheckInput
    """With as much of the windows that are open as has come of them."""
    inputs: CheckInput
    """The windows that are closed; those that are open as well where it fails from its first calls on."""
    detectable: Detectability
    start: ColdStart


def compared_at(strata: Strata, policy: CanaryPolicy, stage: Stage, now: float, log_needed: float) -> Compared:
    """Return what the checks compare at a moment; ``log_needed`` is the logarithm of what the error rate needs."""
    begun = inputs = check_input(strata.begun_by(now), policy, stage)
    failed_early = early_failure(begun, own_error_rate(begun), log_needed, now)
    if failed_early is None:
        inputs = check_input(strata.until(now - policy.watermark_seconds), policy, stage)
    detectable = detectability(inputs, log_needed)
    inputs = inputs._replace(
        is_error_detectable=detectable.is_enough,
        early_failure=failed_early,
        latency_shift=_latency_shift(inputs.strata, stage),
    )
    start = cold_start(inputs, now)
    return Compared(begun, inputs._replace(warm=start.first), detectable, start)


def _held_by_entities(inputs: CheckInput, counts: EntityCounts, *, needs_human: bool) -> Decision | None:
    """Return the verdict where the challenger fails single entities."""
    champion = inputs.strata.champion
    champion_ratio = float(champion["error_entities"].sum()) / max(1.0, float(champion["entities"].sum()))
    found = failing_entities(counts, champion_ratio)
    if not found:
        return None
    reason = entities_words(found, champion_ratio)
    return Decision(Verdict.HOLD, reason, needs_human=needs_human, entities=found)


def _worse_in_slices(counts: SliceCounts, policy: CanaryPolicy, *, needs_human: bool) -> Decision | None:
    """Return the verdict where the challenger does worse for single categories or values of features."""
    found = () if policy.slices == "off" else failing_slices(counts)
    if not found:
        return None
    if policy.slices == "rollback":
        return Decision(Verdict.ROLL_BACK, slices_words(found), slices=found)
    return Decision(Verdict.HOLD, f"{slices_words(found)}; {words.UNDECIDED}", needs_human=needs_human, slices=found)


def _held_by_shared_errors(inputs: CheckInput, rows: Sequence[Evidence], *, needs_human: bool) -> Decision | None:
    """Return the verdict where the challenger would be rolled back but for errors that the champion had as well."""
    row = next((row for row in rows if row.state is CheckState.SHARED), None)
    if row is None:
        return None
    challenger = inputs.strata.challenger
    reason = words.shared_errors_words(row, int(challenger.shared[:, 2].sum()), int(challenger["errors"].sum()))
    return Decision(Verdict.HOLD, reason, needs_human=needs_human, has_shared_errors=True)


def _latency_shift(strata: Strata, stage: Stage) -> FloatArray | None:
    if stage.rules < Rules.DAYS:
        return None
    sides = (strata.champion, strata.challenger)
    return recent_shift(np.stack([side.answered for side in sides]), np.stack([side["log_latency"] for side in sides]))


def _beside_each_other(inputs: CheckInput, rows: Sequence[Evidence], needed: Mapping[str, float]) -> Sequence[Evidence]:
    """Return the rows, of which slow answers are judged beside the typical latency."""
    if inputs.stage.rules < Rules.DAYS:
        return rows
    typical = next(row for row in rows if row.check is TYPICAL_LATENCY)
    return [
        slow_tail_beside(typical, row, inputs, needed[SLOW_TAIL.name]) if row.check is SLOW_TAIL else row
        for row in rows
    ]


def _fails_more(inputs: CheckInput, log_needed: float) -> bool:
    """Return whether more calls fail, were each window's evidence not bounded against incidents.

    No empty cache makes errors: a challenger that has these as well gets no time to get warm.
    """
    errors = own_error_rate(inputs)
    gains = rate_gains(errors.rates.cut(inputs.firsts[0]), errors.tolerated_ratio, inf)
    return log_rate_evidence(gains) >= log_needed


def _held_while_warming(rows: Sequence[Evidence]) -> Sequence[Evidence]:
    """Return the rows, of which those of latency are warming where they fail."""
    return [
        row._replace(state=CheckState.WARMING) if row.check.is_of_latency and row.state is CheckState.FAIL else row
        for row in rows
    ]


def check_input(strata: Strata, policy: CanaryPolicy, stage: Stage) -> CheckInput:
    """Return what the checks compare of all of these windows, before cold starts and early failures are looked for."""
    firsts = tuple(strata.first_at(start) for start in stage.starts)
    warm = strata.first_at(stage.starts[0] + policy.warm_up_seconds)
    return CheckInput(strata, policy, stage, firsts, warm, _restarts(strata, stage))


def _restarts(strata: Strata, stage: Stage) -> tuple[Restarts, ...]:
    """Return which processes have begun within stages: by the clock, whatever the windows hold."""
    if stage.rules < Rules.RESTARTS:
        return ()
    schedules = _schedules(stage)
    passed = float(strata.starts[-1]) - stage.starts[0] if len(strata.starts) else 0.0
    found = []
    for schedule in schedules:
        begun = max(0, int(passed // schedule.seconds))
        newest = np.arange(max(0, begun - MAX_RESTARTS), begun, dtype=np.float64) + 1
        firsts = strata.firsts_at(stage.starts[0] + schedule.seconds * newest)
        found.append(Restarts(firsts, begun, schedule.alpha_share, schedule.even_for))
    return tuple(found)


def _schedules(stage: Stage) -> tuple[RestartSchedule, ...]:
    if stage.rules >= Rules.CHANGES:
        return even_schedules(stage.planned)
    return RESTART_SCHEDULES if stage.rules >= Rules.DAYS else (FREQUENT_RESTARTS,)


def _rolls_back(row: Evidence, policy: CanaryPolicy, failing: Sequence[Evidence]) -> bool:
    """Whether a failing check is enough: the typical latency alone has to be much worse."""
    if row.check is not TYPICAL_LATENCY or len(failing) > 1:
        return True
    return row.change is not None and row.change >= policy.lone_latency_ratio


def _unjudged(inputs: CheckInput, lacking: str) -> list[str]:
    """Return in words what of the challenger's calls is lacking, and how many its callers' deadlines took away."""
    hurried = inputs.hurried_requests
    return [lacking, words.hurried_words(hurried)] if hurried else [lacking]


def _missing(
    inputs: CheckInput, now: float, evidence: Sequence[Evidence], detectable: Detectability, start: ColdStart
) -> list[str]:
    """Return in words what keeps the rollout from advancing."""
    policy, stage = inputs.policy, inputs.stage
    # What fails here is the typical latency, alone and not by enough to roll back.
    failing = [row for row in evidence if row.state is CheckState.FAIL]
    parts = [words.lone_latency_words(row, policy.lone_latency_ratio) for row in failing]
    warming = [row for row in evidence if row.state is CheckState.WARMING]
    if warming and start.warming is not None:
        parts.append(words.warming_words(warming, start.warming, start.ends_at))
    counted = int(inputs.strata.challenger.answered[start.first :].sum())
    if start.was_cold and counted < policy.min_requests:
        parts.append(words.cold_start_words(counted, policy.min_requests))
    others = [row for row in evidence if not is_held_by_outcome(inputs, row)]
    of_calls = [row for row in others if not is_metric(row) and row.check is not JUDGE]
    parts += [words.few_entities_words(row) for row in of_calls if _is_of_few_entities(row)]
    parts += [words.unproven_words(row) for row in of_calls if _is_nearly_proven(row)]
    parts += outcomes_missing(inputs, evidence)
    parts += metrics_missing(inputs, evidence)
    parts += judge_missing(inputs, evidence)
    if not detectable.is_enough:
        missing = detectable.missing_requests or 0
        parts.append(words.detectable_words(detectable.ratio, detectable.asked_ratio, missing))
    requests = int(inputs.strata.challenger["calls"][inputs.firsts[-1] :].sum())
    entities = inputs.strata.arrivals.challenger_entities
    if requests < policy.min_requests:
        asked = f"{requests:,} of {policy.min_requests:,} challenger requests at {stage.weight_percent:g} %"
        parts += _unjudged(inputs, asked)
    if entities < policy.min_entities:
        parts.append(f"{entities:,} of {policy.min_entities:,} challenger entities")
    dwell = words.dwell_words(policy, stage, now)
    return [*parts, dwell] if dwell is not None else parts


def _recently_regressed(begun: CheckInput, now: float) -> list[str]:
    """Return in words what has got worse in the last minute; verdicts of earlier releases did not ask."""
    if begun.stage.rules < Rules.RESTARTS:
        return []
    found = recent_regressions(begun, now)
    return [words.recent_regression_words(one.check, one.champion, one.challenger) for one in found]


def _is_nearly_proven(row: Evidence) -> bool:
    """Whether the interval says "worse" and other entities would say the same: no moment to add traffic."""
    across, needed = row.evidence_across_entities or 0.0, row.evidence_across_entities_needed or 1.0
    return row.state is CheckState.UNPROVEN and across >= needed


def _is_of_few_entities(row: Evidence) -> bool:
    return row.state is CheckState.TOO_EARLY and (row.evidence or 0.0) >= (row.evidence_needed or 1.0)
