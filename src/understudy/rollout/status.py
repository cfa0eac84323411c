"""``RolloutStatus``: a rollout with all that is shown of it, read again without reading twice what has not changed."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Decision, Evidence
from understudy.core.canary.evidence.check_input import Metrics, Outcomes
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.outcomes.held_outcomes import HeldOutcome, held_outcomes
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.history import (
    DecisionAt,
    LeftOut,
    calls_left_out,
    decisions_at,
    latest_moments,
    past_calls_per_second,
    requests_by_stage,
)
from understudy.core.rollout.state import Kind
from understudy.core.routing.policy import Role
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS
from understudy.errors import NotRegistered
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.prediction_log.prediction_history import FailureHistory, LoggedFailures, TrialAsked
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutStore, RolloutView
from understudy.rollout.analysis import (
    analyse,
    analyse_after_promotion,
    checks_to_come,
    policy_of,
    read_after_promotion,
    stage_of,
)
from understudy.rollout.checks.judge_check import judgements_stored
from understudy.rollout.checks.metric_check import metrics_stored
from understudy.rollout.checks.outcome_check import Measure, outcomes_wanted
from understudy.rollout.history import course_of
from understudy.rollout.verdicts.replay import read_evidence
from understudy.rollout.verdicts.stored_judgements import judgements_in
from understudy.rollout.verdicts.stored_outcomes import outcomes_of
from understudy.rollout.verdicts.verdict_event import is_after_promotion
from understudy.rollout.window_cache import WindowCache

LAST_DECISIONS = 30
MEASURED_SECONDS = 60.0
"""How often outcomes are counted anew, as by the monitor."""
RATE_SECONDS = 8 * WINDOW_SECONDS
SHIPPED_SECONDS = 2 * WINDOW_SECONDS
"""Windows that ended longer ago have come from every proxy that is not behind."""

MAX_FAILURE_ROWS = 50_000
"""Of each version's calls: reading them takes 0.3 s from memory; the statement's deadline ends a slower read."""
_CLOCK_SKEW_SECONDS = 60.0
"""Proxies stamp calls, Postgres stamps the rollout; the calls' rollout id tells which are its own."""


class RolloutStatus(NamedTuple):
    """A rollout with all that is shown of it."""

    view: RolloutView
    events: Sequence[RolloutEventRecord]
    decision: Decision | None
    """What the analysis says at this moment; ``None`` when there is nothing to analyse."""
    decisions: Sequence[DecisionAt] = ()
    """Its last decisions, oldest first."""
    requests: Sequence[int] = ()
    """The challenger's calls in each step that began."""
    calls_per_second: Mapping[Role, float] | None = None
    """Of the last two minutes; ``None`` while it is not known."""
    monitor_seconds: float | None = None
    """Since the monitor that leads last said so; ``None`` if none ever did."""
    left_out: Mapping[Role, LeftOut] = {}
    """What callers' deadlines took away; empty while nothing was analysed."""
    outcomes: Outcomes = ()
    """As ``decision`` has them, in the order of the plan."""
    metrics: Metrics = ()
    """Likewise."""
    judgements: Judgements = NO_JUDGEMENTS
    """Of the plan's judge; likewise."""
    to_come: Sequence[Evidence] = ()
    """The checks that it will be judged by, without figures; empty once ``decision`` has them."""


class _Analysis(NamedTuple):
    decision: Decision | None = None
    decisions: Sequence[DecisionAt] = ()
    requests: Sequence[int] = ()
    left_out: Mapping[Role, LeftOut] = {}
    outcomes: Outcomes = ()
    metrics: Metrics = ()
    judgements: Judgements = NO_JUDGEMENTS


class StatusReader:
    """Reads one rollout's status again and again.

    Args:
        rollouts: Where it is.
        windows: What the versions did.
        measure_outcome: Asks for an outcome that it is judged by, where its plan names some.
        model_name: Its model.
        rollout_id: By default the model's newest one at the first read.
        last_decisions: How many moments it is judged at: the newest one, and those before it. Each takes some ten
            milliseconds of a core at the first read, and so does a window that is new at each later one.
    """

    def __init__(
        self,
        rollouts: RolloutStore,
        windows: WindowLog,
        measure_outcome: Measure,
        model_name: str,
        rollout_id: int | None = None,
        *,
        last_decisions: int = LAST_DECISIONS,
    ) -> None:
        self._rollouts = rollouts
        self._windows = windows
        self._measure_outcome = measure_outcome
        self._model_name = model_name
        self._rollout_id = rollout_id
        self._last_decisions = last_decisions
        self._window_cache = WindowCache(windows)
        self._events: tuple[object, Sequence[RolloutEventRecord]] = (None, ())
        """With what they were read at."""
        self._known: dict[float, DecisionAt] = {}
        """The last decisions but the newest, by their moments."""
        self._rates: tuple[object, Mapping[Role, float] | None] = (None, None)
        self._after: tuple[object, _Analysis] = (None, _Analysis())
        self._outcomes: tuple[object, Outcomes] = (None, ())
        self._metrics: tuple[object, Metrics] = (None, ())
        self._judgements: tuple[object, Judgements] = (None, NO_JUDGEMENTS)
        self._to_come: Sequence[Evidence] | None = None

    async def read(self) -> RolloutStatus:
        """Return the rollout as it is now.

        Raises:
            NotRegistered: There is no such rollout of the model.
            RegistryUnavailable: Postgres does not answer in time.
        """
        view = await view_of(self._rollouts, self._model_name, self._rollout_id)
        self._rollout_id, state = view.record.id, view.record.state
        view = await self._window_cache.with_champion_before(view)
        events = await self._events_of(view)
        if state.phase.is_final:
            return RolloutStatus(view, events, None)
        seen = await self._see(view)
        monitor_seconds = None
        if view.policy is not None:
            monitor_seconds = (await self._rollouts.reach(self._model_name)).monitor_seconds
        found = (seen.decision, seen.decisions, seen.requests)
        rates = await self._rates_of(view)
        shown = RolloutStatus(view, events, *found, rates, monitor_seconds, seen.left_out, seen.outcomes)
        to_come = await self._checks_to_come(view) if seen.decision is None else ()
        return shown._replace(metrics=seen.metrics, judgements=seen.judgements, to_come=to_come)

    async def _checks_to_come(self, view: RolloutView) -> Sequence[Evidence]:
        """Return what a rollout will be judged by before it has calls, once: its plan does not change."""
        state = view.record.state
        if state.kind is not Kind.ROLLOUT or state.promoted_at is not None:
            return ()
        if self._to_come is None:
            self._to_come = await asyncio.to_thread(checks_to_come, view)
        return self._to_come

    async def _events_of(self, view: RolloutView) -> Sequence[RolloutEventRecord]:
        read_at = (view.record.revision, view.record.announced_at)
        if self._events[0] != read_at:
            self._events = read_at, tuple(await self._rollouts.events(view.record.id))
        return self._events[1]

    async def _see(self, view: RolloutView) -> _Analysis:
        state = view.record.state
        if not state.step_starts:
            return _Analysis()
        if state.promoted_at is not None:
            return await self._after_promotion(view)
        if state.plan.canary_policy == SEED:
            windows = await self._windows.of_rollout(view.record.id)
            decision = await asyncio.to_thread(analyse, view, windows, view.read_at)
            return _Analysis(decision, left_out=calls_left_out(stratify(windows, view.record.id)))
        strata = await self._window_cache.strata(view.record.id, view.read_at, started_at=state.started_at)
        if strata is None:
            return _Analysis()
        said = (await self._outcomes_of(view), await self._metrics_of(view), await self._judgements_of(view))
        return await asyncio.to_thread(self._judged, view, strata, *said)

    async def _outcomes_of(self, view: RolloutView) -> Outcomes:
        minute, wanted = view.read_at // MEASURED_SECONDS, outcomes_wanted(view)
        if self._outcomes[0] != minute and wanted:
            self._outcomes = minute, tuple([await self._measure_outcome(view, limit) for limit in wanted])
        return self._outcomes[1]

    async def _metrics_of(self, view: RolloutView) -> Metrics:
        """Return what a monitor has stored: this process knows no source, and would judge by other values."""
        minute = view.read_at // MEASURED_SECONDS
        if self._metrics[0] != minute:
            self._metrics = minute, await metrics_stored(self._rollouts, view.record, view.read_at)
        return self._metrics[1]

    async def _judgements_of(self, view: RolloutView) -> Judgements:
        """Return what a monitor has stored of the judge, which this process does not ask."""
        minute = view.read_at // MEASURED_SECONDS
        if self._judgements[0] != minute:
            self._judgements = minute, await judgements_stored(self._rollouts, view.record, view.read_at)
        return self._judgements[1]

    async def _after_promotion(self, view: RolloutView) -> _Analysis:
        state = view.record.state
        looked_at = (state.promoted_at, view.read_at // WINDOW_SECONDS)
        if self._after[0] != looked_at:
            windows = await read_after_promotion(self._windows, view)
            decision = await asyncio.to_thread(analyse_after_promotion, view, windows)
            self._after = looked_at, _Analysis(decision, left_out=calls_left_out(stratify(windows, view.record.id)))
        return self._after[1]

    def _judged(
        self, view: RolloutView, strata: Strata, outcomes: Outcomes, metrics: Metrics, judgements: Judgements
    ) -> _Analysis:
        now, course = view.read_at, course_of(view)._replace(metrics=metrics, judgements=judgements)
        # A window counts when its rows are in: the moments are those at which one more does.
        lag = course.limits[-1].watermark_seconds
        *earlier, _ = (
            moment + lag for moment in latest_moments(now - lag, self._last_decisions, course.stage.starts[0])
        )
        news = decisions_at(strata, course, [moment for moment in earlier if moment not in self._known])
        known = self._known | {one.at: one for one in news}
        self._known = {moment: known[moment] for moment in earlier}
        limits, stage = policy_of(view), stage_of(view)
        decision = judge(strata, limits, stage, now, outcomes, metrics=metrics, judgements=judgements)
        requests = requests_by_stage(strata, course.stage.starts, now - lag)
        decisions = [*self._known.values(), DecisionAt(now, decision)]
        return _Analysis(decision, decisions, requests, calls_left_out(strata), outcomes, metrics, judgements)

    async def _rates_of(self, view: RolloutView) -> Mapping[Role, float] | None:
        until = (view.read_at - SHIPPED_SECONDS) // WINDOW_SECONDS * WINDOW_SECONDS
        step_began = -(-view.record.state.step_started_at // WINDOW_SECONDS) * WINDOW_SECONDS
        since = max(until - RATE_SECONDS, step_began)
        if since >= until:
            return None
        if self._rates[0] != (since, until):
            ids = [view.record.champion_id, view.record.challenger_id]
            windows = await self._windows.of_versions(ids, since, until)
            self._rates = (since, until), past_calls_per_second(windows, since, until)
        return self._rates[1]


def evidence_of(status: RolloutStatus) -> Sequence[Evidence]:
    """Return the checks of a rollout at this moment, or of the verdict that ended it."""
    rows: Sequence[Evidence] = []
    if status.decision is not None:
        rows = status.decision.evidence
    elif (last := _last_with_evidence(status)) is not None:
        with suppress(ValueError):  # damaged, which judging it again reports
            rows = read_evidence(last)
    if not is_beside_the_past(status):
        return rows
    # Nothing is split any more, and before its first calls nothing is known of the new champion.
    rows = [row for row in rows if row.check is not SAMPLE_RATIO]
    return rows if any(row.challenger is not None for row in rows) else []


def is_beside_the_past(status: RolloutStatus) -> bool:
    """Whether the checks of :func:`evidence_of` compare a new champion with what the one before it did."""
    if status.decision is not None:
        return status.view.record.state.promoted_at is not None
    last = _last_with_evidence(status)
    return last is not None and is_after_promotion(last.inputs)


def _last_with_evidence(status: RolloutStatus) -> RolloutEventRecord | None:
    return next((event for event in reversed(status.events) if event.evidence), None)


def held_outcomes_of(status: RolloutStatus) -> Sequence[HeldOutcome]:
    """Return the outcomes that hold the step at this moment, or of the verdict that ended the rollout."""
    outcomes, last = status.outcomes, _last_with_evidence(status)
    if status.decision is None and last is not None:
        with suppress(TypeError):  # damaged, which judging it again reports
            outcomes = outcomes_of(last.inputs)
    return held_outcomes(policy_of(status.view), evidence_of(status), outcomes)


def judgements_seen(status: RolloutStatus) -> Judgements:
    """Return what the judge of a rollout has said by now, or by the verdict that ended it."""
    last = _last_with_evidence(status)
    if status.decision is not None or last is None:
        return status.judgements
    with suppress(LookupError, TypeError, ValueError):  # damaged, which judging it again reports
        return judgements_in(last.inputs)
    return NO_JUDGEMENTS


async def view_of(rollouts: RolloutStore, model_name: str, rollout_id: int | None) -> RolloutView:
    """Return a rollout of a model with what it acts on, by default its newest one.

    Raises:
        NotRegistered: There is no such rollout, or it is another model's: both in the same words, since a key for one
            model is told nothing of the others.
    """
    if rollout_id is None:
        return await rollouts.view(await rollouts.latest_id(model_name))
    with suppress(NotRegistered):
        view = await rollouts.view(rollout_id)
        if view.record.state.model_name == model_name:
            return view
    raise NotRegistered(f"{model_name} has no rollout {rollout_id}", hint="understudy rollout list shows them.")


async def failures_of(history: FailureHistory, view: RolloutView) -> LoggedFailures:
    """Return what the challenger's calls failed with from the rollout's start to its end, or to this moment.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the history.
    """
    record = view.record
    trial = TrialAsked(
        record.split_id,
        record.champion_id,
        record.challenger_id,
        since=record.state.started_at - _CLOCK_SKEW_SECONDS,
        until=(record.finished_at or view.read_at) + _CLOCK_SKEW_SECONDS,
    )
    return await history.failures(trial, MAX_FAILURE_ROWS)
