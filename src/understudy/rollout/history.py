"""A rollout's history: what the analysis said over time, and the scores that both sides gave."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from understudy.core.canary.decision import Verdict
from understudy.core.canary.evidence.check_input import Metrics
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.canary.slices.failing_slices import UNIT_SECONDS
from understudy.core.canary.slices.slice_figures import SliceRow, slice_rows
from understudy.core.rollout.history import (
    MAX_DECISIONS,
    CallsUntil,
    Course,
    DecisionAt,
    ScoreDistributions,
    calls_until,
    decisions_at,
    moments_between,
    requests_by_stage,
    score_distributions,
    scores_by_role,
)
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram, merged
from understudy.core.windows.strata import Strata, join_strata, stratify
from understudy.core.windows.strata_codec import strata_from_text
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.ports.monitoring.window_log import BLOCK_SECONDS, WindowLog, window_block_start
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutStore, RolloutView
from understudy.rollout.analysis import stage_of, step_limits
from understudy.rollout.checks.judge_check import judgements_stored
from understudy.rollout.checks.metric_check import metrics_stored
from understudy.rollout.checks.slice_check import add_windows, are_slices_judged, new_tally
from understudy.rollout.verdicts.stored_judgements import judgements_in
from understudy.rollout.verdicts.stored_metrics import metrics_of
from understudy.rollout.verdicts.verdict_event import is_after_promotion
from understudy.rollout.window_cache import EARLY_SECONDS

PIECE_SECONDS = 4 * BLOCK_SECONDS
"""How much of a rollout is read at a time where all of its windows are: an hour of a proxy has 480 of them, 10 MB."""


class WindowsSeen(NamedTuple):
    """What a history is made of."""

    strata: Strata
    scores: Mapping[Role, Histogram]


class RolloutHistory(NamedTuple):
    """What is known of a rollout's earlier decisions."""

    decisions: Sequence[DecisionAt]
    """Oldest first; none before the first traffic, and none of the reference rule, which has no evidence."""
    requests: Sequence[int]
    """The challenger's calls in each step that began."""
    scores: ScoreDistributions | None
    windows_are_gone: bool
    """The decisions rest on what the last verdict stored, because windows were deleted since."""
    slices: Sequence[SliceRow] = ()
    """Those that the challenger met, the worst first."""
    calls: Sequence[CallsUntil] = ()
    """Between each two decisions."""


def history_of(
    view: RolloutView,
    windows: Sequence[Window],
    events: Sequence[RolloutEventRecord],
    sliced: Sequence[Window] = (),
    metrics: Metrics = (),
    *,
    judgements: Judgements = NO_JUDGEMENTS,
) -> RolloutHistory:
    """Return a rollout's history, from its windows, or from its last verdict's when they are there no more.

    Args:
        view: The rollout.
        windows: All of its windows that there are.
        events: All that happened to it.
        sliced: The same windows with their slices, which are read by themselves.
        metrics: Of an operator's own; of a rollout that is over those of its last verdict count.
        judgements: Of its judge, likewise.
    """
    seen = WindowsSeen(stratify(windows, view.record.id), scores_by_role(windows))
    return history_of_seen(view, seen, events, sliced, metrics, judgements=judgements)


def history_of_seen(
    view: RolloutView,
    seen: WindowsSeen,
    events: Sequence[RolloutEventRecord],
    sliced: Sequence[Window] = (),
    metrics: Metrics = (),
    *,
    judgements: Judgements = NO_JUDGEMENTS,
) -> RolloutHistory:
    """Return the same from what was made of the windows.

    It makes 60 decisions at most: 0.2 s for a rollout of 300 windows a side, 0.4 s for one of 3,000 (measured).
    """
    state, strata, last = view.record.state, seen.strata, end_of(view, events)
    if not state.step_starts or state.plan.canary_policy == SEED:
        requests = requests_by_stage(strata, state.step_starts)
        return RolloutHistory((), requests, score_distributions(seen.scores), windows_are_gone=False)
    stored = _last_stored(events)
    windows_are_gone = stored is not None and not np.isin(stored[1].starts, strata.starts).all()
    if windows_are_gone and stored is not None:
        last, strata = stored
    said = judgements if judgements != NO_JUDGEMENTS else _last_judgements(events)
    course = course_of(view)._replace(metrics=metrics or _last_metrics(events), judgements=said)
    first = state.step_starts[0] + WINDOW_SECONDS + course.limits[0].watermark_seconds
    moments = moments_between(first, last, MAX_DECISIONS) if last >= first and len(strata.starts) else []
    scores = None if windows_are_gone else score_distributions(seen.scores)
    requests = requests_by_stage(strata, state.step_starts, last - course.limits[-1].watermark_seconds)
    slices = slices_of(view, sliced, end_of(view, events))
    decisions = decisions_at(strata, course, moments)
    calls = calls_until(strata, moments)
    return RolloutHistory(decisions, requests, scores, windows_are_gone, slices, calls)


async def read_history(rollouts: RolloutStore, windows: WindowLog, view: RolloutView) -> RolloutHistory:
    """Return a rollout's history without its slices.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    events = await rollouts.events(view.record.id)
    metrics: Metrics = ()
    judgements = NO_JUDGEMENTS
    if not view.record.state.phase.is_final:
        metrics = await metrics_stored(rollouts, view.record, view.read_at)
        judgements = await judgements_stored(rollouts, view.record, view.read_at)
    seen = await _read_windows(windows, view)
    return await asyncio.to_thread(history_of_seen, view, seen, events, metrics=metrics, judgements=judgements)


async def _read_windows(windows: WindowLog, view: RolloutView) -> WindowsSeen:
    """Read a rollout's windows by pieces, from where the analysis reads them on: a month at once takes gigabytes."""
    record = view.record
    first = max(0, window_block_start(record.state.started_at - EARLY_SECONDS))
    last = view.read_at if record.finished_at is None else record.finished_at
    borders = [*map(float, range(first, max(first + 1, int(last)), PIECE_SECONDS)), inf]
    parts: list[Strata] = []
    scores = scores_by_role(())
    async with windows.shared_session():
        for since, until in pairwise(borders):
            found = await windows.of_rollout(record.id, since, until)
            if not found:
                continue
            part, own = await asyncio.to_thread(lambda read: (stratify(read, record.id), scores_by_role(read)), found)
            parts.append(part)
            scores = {role: merged((known, own[role])) for role, known in scores.items()}
    return WindowsSeen(join_strata(parts) if parts else stratify((), record.id), scores)


def slices_of(view: RolloutView, windows: Sequence[Window], until: float) -> Sequence[SliceRow]:
    """Return the slices that the challenger met until then, as far as their windows are still there.

    All that does worse is named, also what an operator was told of and let go on.
    """
    record = view.record
    if not record.state.step_starts or not are_slices_judged(record.state):
        return ()
    tally = new_tally(record.state)
    settled = until // UNIT_SECONDS * UNIT_SECONDS
    ended = [window for window in windows if window.key.start < settled]
    add_windows(tally, ended, record.id, record.state.step_starts)
    return slice_rows(tally.figures(), tally.counts())


def course_of(view: RolloutView) -> Course:
    """Return the way of a rollout up to the promotion, or to now."""
    stage, plan = stage_of(view), view.record.state.plan
    begun = plan.steps[: len(stage.starts)]
    return Course(stage, [step_limits(plan, step) for step in begun], [step.weight_percent for step in begun])


def end_of(view: RolloutView, events: Sequence[RolloutEventRecord]) -> float:
    """Return until when the two versions were compared: the promotion, the verdict that ended it, its end, or now."""
    record = view.record
    if record.state.promoted_at is not None:
        return record.state.promoted_at
    if record.finished_at is None:
        return view.read_at
    fatal = [_looked_at(event) for event in events if event.verdict is Verdict.ROLL_BACK]
    return next((moment for moment in reversed(fatal) if moment is not None), record.finished_at)


def _last_metrics(events: Sequence[RolloutEventRecord]) -> Metrics:
    for event in reversed(events):
        with suppress(LookupError, TypeError, ValueError):  # damaged, which the replay of that verdict says
            if found := metrics_of(event.inputs):
                return found
    return ()


def _last_judgements(events: Sequence[RolloutEventRecord]) -> Judgements:
    for event in reversed(events):
        with suppress(LookupError, TypeError, ValueError):  # damaged, which the replay of that verdict says
            if (found := judgements_in(event.inputs)) != NO_JUDGEMENTS:
                return found
    return NO_JUDGEMENTS


def _last_stored(events: Sequence[RolloutEventRecord]) -> tuple[float, Strata] | None:
    """Return when the last verdict on both versions side by side that can be read was made, and what it rested on."""
    for event in reversed(events):
        moment = _looked_at(event)
        if moment is not None and "strata" in event.inputs and not is_after_promotion(event.inputs):
            with suppress(ValueError):  # damaged, which the replay of that verdict says
                return moment, strata_from_text(event.inputs["strata"])
    return None


def _looked_at(event: RolloutEventRecord) -> float | None:
    moment = event.inputs.get("now")
    return float(moment) if isinstance(moment, int | float) else None
