"""Canary analysis of a rollout at a moment: the same for the monitor, the command line and a replay."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from understudy.core.canary.analysis import evaluate, judge
from understudy.core.canary.checks import Checks, judged_checks
from understudy.core.canary.decision import Decision, Evidence
from understudy.core.canary.entities.worst_entities import EntityCounts
from understudy.core.canary.evidence.check_input import Metrics, Outcomes
from understudy.core.canary.glance import looks_worse
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.post_promotion import REMEMBERED_SECONDS, Watch, judge_watch, past_of, watch_of
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.canary.reference_rule import evaluate_reference_rule
from understudy.core.canary.scores.constant_scores import LiveScores
from understudy.core.canary.slices.failing_slices import SliceCounts
from understudy.core.drift.beside_champion import BesideChampion
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, RolloutState
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import Window
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.stored_move import Moved
from understudy.rollout.warm_up.warm_up_verdict import WarmedUp

DEFAULT = "default"
POLICY_NAMES = (DEFAULT, SEED)


class Analysis(NamedTuple):
    """What a tick made of a rollout's windows."""

    decision: Decision | None = None
    after_promotion: Decision | None = None
    watch: Watch | None = None
    """What that one rests on."""
    requests: int = 0
    """Of the challenger in the current step."""
    strata: Strata | None = None
    """What the decision rests on, with ``outcomes``, ``metrics`` and ``judgements``."""
    outcomes: Outcomes = ()
    metrics: Metrics = ()
    judgements: Judgements = NO_JUDGEMENTS
    warmed_up: WarmedUp | None = None
    """Of a rollout that has not begun, in a tick that called its challenger."""
    constant_scores: LiveScores | None = None
    """Of a challenger that gives every call the same score, unless that is expected."""
    moved_scores: Moved | None = None
    """Of one whose mean score has moved, unless that is expected."""
    entities: EntityCounts | None = None
    """The entities that it failed most, which the decision rests on as well."""
    slices: SliceCounts | None = None
    """The slices that it does worst in; likewise."""
    drift: Sequence[BesideChampion] = ()
    """How it drifts from the champion, where that takes it back: the decision rests on it as well."""
    are_shared_errors_told: bool = False
    """Whether the decision was made for an operator who knows of errors that the champion had as well."""
    is_worse: bool = False
    """Whether a glance at a guard's last minutes would ask for an analysis."""


def analysis_of_windows(
    view: RolloutView,
    windows: Sequence[Window],
    outcomes: Outcomes,
    metrics: Metrics = (),
    judgements: Judgements = NO_JUDGEMENTS,
) -> Analysis:
    """Return what all windows of a rollout say."""
    strata = stratify(windows, view.record.id)
    decision = analyse(view, windows, view.read_at, outcomes, metrics, judgements)
    found = Analysis(decision, requests=_requests(view, strata), strata=strata, outcomes=outcomes, metrics=metrics)
    return found._replace(judgements=judgements)


def analysis_of_strata(
    view: RolloutView,
    strata: Strata,
    outcomes: Outcomes,
    *,
    metrics: Metrics = (),
    judgements: Judgements = NO_JUDGEMENTS,
    entities: EntityCounts | None = None,
    slices: SliceCounts | None = None,
    drift: Sequence[BesideChampion] = (),
    are_shared_errors_told: bool = False,
    checks: Checks = judged_checks,
) -> Analysis:
    """Return what all windows of a rollout say, given them side by side."""
    policy, told = policy_of(view), are_shared_errors_told
    decision = judge(
        strata,
        policy,
        stage_of(view),
        view.read_at,
        outcomes,
        metrics=metrics,
        judgements=judgements,
        entities=entities,
        slices=slices,
        drift=drift,
        are_shared_errors_told=told,
        checks=checks,
    )
    is_worse = view.record.state.kind is Kind.GUARD and looks_worse(strata, policy, view.read_at)
    found = Analysis(decision, requests=_requests(view, strata), strata=strata, outcomes=outcomes, metrics=metrics)
    found = found._replace(judgements=judgements, is_worse=is_worse, are_shared_errors_told=told)
    return found._replace(entities=entities, slices=slices, drift=tuple(drift))


def analysis_after_promotion(view: RolloutView, windows: Sequence[Window]) -> Analysis:
    """Return what the windows since a promotion say; see :func:`read_after_promotion`."""
    watch = _watch_of(view, windows)
    after = None if watch is None else judge_watch(watch, view.read_at)
    requests = _requests(view, stratify(windows, view.record.id))
    return Analysis(after_promotion=after, watch=watch, requests=requests)


def glance(view: RolloutView, windows: Sequence[Window]) -> bool:
    """Return whether the windows of a guard's last minutes look worse."""
    return looks_worse(stratify(windows, view.record.id), policy_of(view), view.read_at)


def _requests(view: RolloutView, strata: Strata) -> int:
    first = int(np.searchsorted(strata.starts, view.record.state.step_started_at))
    return int(strata.challenger["calls"][first:].sum())


def analyse(  # noqa: PLR0917 - as :func:`evaluate` has them
    view: RolloutView,
    windows: Sequence[Window],
    now: float,
    outcomes: Outcomes = (),
    metrics: Metrics = (),
    judgements: Judgements = NO_JUDGEMENTS,
) -> Decision:
    """Return the verdict on a rollout that has begun to get traffic.

    Args:
        view: The rollout.
        windows: All of its windows.
        now: Seconds since the epoch.
        outcomes: Challenger less champion, where the rollout is to be judged by some.
        metrics: Of an operator's own, likewise.
        judgements: Of a judge, likewise.
    """
    if view.record.state.plan.canary_policy == SEED:
        return evaluate_reference_rule(windows, stage_of(view), now)
    return evaluate(windows, policy_of(view), stage_of(view), now, outcomes, metrics, judgements)


def checks_to_come(view: RolloutView) -> Sequence[Evidence]:
    """Return the checks that a rollout will be judged by, with their limits and without figures."""
    state = view.record.state
    begun = state if state.step_starts else replace(state, step_starts=(view.read_at,))
    return analyse(view._replace(record=view.record._replace(state=begun)), (), view.read_at).evidence


async def read_after_promotion(log: WindowLog, view: RolloutView) -> list[Window]:
    """Return what the watch over a new champion rests on: an hour of the old one's windows, and the rollout's since.

    The old champion's need not be of the rollout: one that changes champions at once has none before its promotion.
    """
    record = view.record
    promoted_at = record.state.promoted_at or record.state.started_at
    before = await log.of_versions([record.champion_id], promoted_at - REMEMBERED_SECONDS, promoted_at)
    return [*before, *await log.of_rollout(record.id, promoted_at)]


def analyse_after_promotion(view: RolloutView, windows: Sequence[Window]) -> Decision | None:
    """Return what the old champion's last hour says about the new champion; ``None`` without such an hour.

    Args:
        view: The rollout, after its promotion.
        windows: What :func:`read_after_promotion` returns.
    """
    watch = _watch_of(view, windows)
    return None if watch is None else judge_watch(watch, view.read_at)


def _watch_of(view: RolloutView, windows: Sequence[Window]) -> Watch | None:
    record, stage = view.record, stage_of(view)
    past = past_of(windows, stage, record.champion_id)
    return watch_of(past, windows, stage, record.challenger_id, view.read_at)


def policy_of(view: RolloutView) -> CanaryPolicy:
    """Return the limits of the current step."""
    return policy_in(view.record.state)


def policy_in(state: RolloutState) -> CanaryPolicy:
    """Return the limits of the step that a rollout is in."""
    return step_limits(state.plan, state.plan.steps[state.step])


def step_limits(plan: RolloutPlan, step: Step) -> CanaryPolicy:
    """Return the canary analysis's limits in a step: those of the plan, with the step's own time and requests.

    Raises:
        ValueError: The plan's ``canary_limits`` cannot be used.
    """
    limits = {
        **plan.canary_limits,
        "dwell_seconds": step.dwell_seconds,
        "min_requests": max(1, step.min_requests),
        "maximum_seconds": max(1.0, plan.maximum_seconds),
    }
    return CanaryPolicy.from_json(limits)


def stage_of(view: RolloutView) -> Stage:
    """Return where the rollout stands, as the analysis takes it."""
    state = view.record.state
    return Stage(
        model_name=state.model_name,
        version=state.challenger,
        rollout_id=state.rollout_id,
        starts=state.step_starts,
        planned=1 if state.kind is Kind.GUARD else len(state.plan.steps),
        weight_percent=state.weight_percent,
        weights_percent=view.weights_percent,
        split_from=state.split_from,
        champion_before=view.champion_before.blocks,
        tail_steps=view.champion_before.tail_steps,
    )
