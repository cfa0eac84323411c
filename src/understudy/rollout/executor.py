"""Carries out what the state machine decides, for every open rollout, at every tick of the monitor."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import structlog

from understudy.core.canary.decision import Verdict
from understudy.core.canary.evidence.check_input import Metrics, Outcomes
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.scores.constant_scores import constant_words
from understudy.core.rollout.actions import AskGate, Beside, WarmUp
from understudy.core.rollout.guard import GUARD_SECONDS
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.policy_conflict import at_seen_generation
from understudy.core.rollout.state import Observation, Transition, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.core.rollout.transitions import others_resolved
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS
from understudy.errors import LeadershipLost
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutStore, RolloutView
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.rollout.alert_events import alert_events
from understudy.rollout.analysis import Analysis
from understudy.rollout.calm_guards import Turn
from understudy.rollout.checks.constant_scores import ConstantScores
from understudy.rollout.checks.drift_check import DriftCheck
from understudy.rollout.checks.entity_check import EntityCheck
from understudy.rollout.checks.moved_scores import MovedScores, moved_event
from understudy.rollout.checks.slice_check import SliceCheck
from understudy.rollout.end_announcement import EndAnnouncement
from understudy.rollout.gate_asks import GateAsks
from understudy.rollout.metrics import ENTITIES, SCORES, SHARED_ERRORS, SLICES, RolloutMetrics
from understudy.rollout.tick_analysis import TickAnalysis
from understudy.rollout.verdicts.entity_verdict import named_keys, stored_entities
from understudy.rollout.verdicts.shared_errors import SharedErrors, are_told_now, stored_shared_errors
from understudy.rollout.verdicts.slice_verdict import named_slices, stored_slices
from understudy.rollout.verdicts.stored_judgements import stored_judgements
from understudy.rollout.verdicts.stored_metrics import stored_metrics
from understudy.rollout.verdicts.verdict_event import ACTOR, judged_event, stored_strata, watch_event
from understudy.rollout.warm_up.score_comparison import ScoreComparison, Through
from understudy.rollout.warm_up.warm_up import WarmUpProbe
from understudy.rollout.warm_up.warm_up_verdict import (
    WarmedUp,
    are_different_scores_expected,
    constant_event,
    is_held_by_warm_up,
)

_log = structlog.get_logger(__name__)

WARM_UP_TICK_SECONDS = 10.0
"""Longest warm-up of one tick: while a version hangs, the other rollouts wait this much longer at most."""

TICK_SECONDS = 5.0
"""Time between two ticks, unless settings say otherwise."""
WATCH_TICKS = 12
"""The first of so many ticks, a minute of them by default, looks for splits without a guard: the database opens all but
those of a release before."""


def _none_of(_rollout_id: int) -> Metrics:
    return ()


def _none_judged(_rollout_id: int) -> Judgements:
    return NO_JUDGEMENTS


class RoundRobin:
    """The order of rollouts within a tick, which may be cut off: the next tick goes on where that one ended."""

    def __init__(self) -> None:
        self._last_id = 0

    def of(self, rollout_ids: Collection[int]) -> Iterator[int]:
        """Yield each id once, from the one after the last that was begun with."""
        for rollout_id in sorted(rollout_ids, key=lambda known: (known <= self._last_id, known)):
            self._last_id = rollout_id
            yield rollout_id


class RolloutExecutor:
    """Analyses each rollout, asks the state machine what comes next, and does it in one transaction.

    Args:
        store: Rollouts and the policies they change.
        windows: What the versions did.
        outcomes_of: What the outcomes of a rollout's plan came to of late, challenger less champion, by its id.
        warm_up: Calls a version before callers do.
        telemetry: Gets steps, checks, transitions and rollbacks.
        entities: Counts the calls of single entities; ``None`` names none.
        drifts: Compares the hours of challenger and champion; ``None`` compares none.
        slices: Adds up what windows have of categories and values of features; ``None`` names none.
        gates: Asks the services that a plan names before a step; ``None`` asks none, and none of them lets a step pass.
        scores: Compares a version's scores with the champion's before callers get any; ``None`` compares none.
        metrics_of: What is stored of the metrics of a rollout's plan, by its id; by default there are none.
        judgements_of: What the judge of a rollout's plan has said, likewise.
        environment: Named in alerts.
        guard_seconds: After how long a guard's evidence begins anew.
        guard_settings: By what guards that begin are judged beside the usual checks; by default by nothing.
        tick_seconds: Time between two ticks.
    """

    def __init__(
        self,
        store: RolloutStore,
        windows: WindowLog,
        outcomes_of: Callable[[int], Outcomes],
        warm_up: WarmUpProbe,
        telemetry: Telemetry,
        *,
        scores: ScoreComparison | None = None,
        entities: EntityCheck | None = None,
        drifts: DriftCheck | None = None,
        slices: SliceCheck | None = None,
        gates: GateAsks | None = None,
        metrics_of: Callable[[int], Metrics] = _none_of,
        judgements_of: Callable[[int], Judgements] = _none_judged,
        environment: str,
        guard_seconds: float = GUARD_SECONDS,
        guard_settings: GuardSettings | None = None,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._store = store
        self._windows = windows
        self._warm_up = warm_up
        self._scores = scores
        self._entities = entities
        self._slices = slices
        self._gates = gates
        self._shared_errors = SharedErrors(store)
        self._metrics = RolloutMetrics(telemetry)
        self._environment = environment
        self._guard_seconds = guard_seconds
        self._guard_settings = guard_settings or GuardSettings()
        self._analysis = TickAnalysis(
            store,
            windows,
            outcomes_of,
            metrics_of,
            self._metrics,
            judgements_of=judgements_of,
            entities=entities,
            slices=slices,
            drifts=drifts,
            shared_errors=self._shared_errors,
            tick_seconds=tick_seconds,
        )
        self._ends = EndAnnouncement(store, self._metrics)
        self._constant = ConstantScores(windows)
        self._moved = MovedScores()
        self._order = RoundRobin()
        self._ticks = 0
        self._left_at: dict[int, int] = {}
        """The revision that each rollout was left at."""

    async def tick(self, epoch: Epoch) -> None:
        """Take every rollout at most one step further; one that fails, in whatever way, keeps no other from its own.

        Guards that are calm have a turn every few ticks.

        Raises:
            LeadershipLost: Another monitor leads; whatever was not written is that one's.
            Exception: The last failure, once all were looked at.
        """
        async with self._store.shared_session(), self._windows.shared_session():
            await self._tick(epoch)

    async def _tick(self, epoch: Epoch) -> None:
        if self._ticks % WATCH_TICKS == 0:
            for model_name in await self._store.watch_splits(epoch=epoch):
                _log.info("guard.opened", model=model_name)
        self._ticks += 1
        rollout_ids = await self._store.open_ids()
        self._constant.forget_others(rollout_ids)
        self._moved.forget_others(rollout_ids)
        self._shared_errors.forget_others(rollout_ids)
        self._metrics.forget_others(rollout_ids)
        if self._gates is not None:
            self._gates.forget_others(rollout_ids)
        self._left_at = {known: self._left_at[known] for known in rollout_ids if known in self._left_at}
        failures: list[Exception] = []
        cold: list[tuple[RolloutView, Observation]] = []
        turns = self._analysis.turns(rollout_ids, await self._store.guard_ids())
        for rollout_id in self._order.of(turns):
            with _kept_apart(rollout_id, failures):
                wants_warm_up = await self._advance(rollout_id, turns[rollout_id], epoch)
                cold += [] if wants_warm_up is None else [wants_warm_up]
        # Last, and together: a model server that hangs must not hold up a rollback of another model.
        await self._warm_up_all(cold, failures, epoch)
        if failures:
            raise failures[-1]

    async def _advance(self, rollout_id: int, turn: Turn, epoch: Epoch) -> tuple[RolloutView, Observation] | None:
        """Take a rollout a step further; return what was seen of one whose challenger is to be warmed up first."""
        view = await self._store.view(rollout_id)
        if view.proxies_hidden:
            _log.warning("rollout.proxies_hidden", rollout_id=rollout_id, problem=HIDDEN_WORDS)
        await self._resolve_others(view, epoch)
        if view.record.state.phase.is_final and view.record.finished_at is not None:
            self._metrics.forget(rollout_id)
            await self._ends.announce(view, epoch)
            return None
        looked = await self._analysis.look(view, turn, epoch)
        if looked is None:
            _log.info("rollout.still_reading", rollout_id=rollout_id)
            return None
        view, seen = looked
        if seen.decision is None or seen.decision.verdict is not Verdict.ROLL_BACK:  # callers wait for a rollback
            seen = await self._with_scores(view, seen)
        answers = {} if self._gates is None else self._gates.answers(view.record.state)
        observation = replace(
            _observation(view, seen),
            guard_seconds=self._guard_seconds,
            guard_limits=self._guard_settings.limits_of(view.record.state.model_name),
            gate_answers=answers,
        )
        transition = next_step(view.record.state, observation)
        if any(isinstance(action, WarmUp) for action in transition.actions):
            return view, observation
        await self._carry_out(view, transition, seen, epoch)
        return None

    async def _with_scores(self, view: RolloutView, seen: Analysis) -> Analysis:
        """Return the same with a challenger's scores where they are all the same or have moved, unless expected."""
        state = view.record.state
        if self._scores is None or state.plan.expect_different_scores:
            return seen
        constant = await self._constant.look(view)
        moved = None if constant is not None else await self._moved.look(view, seen.strata)
        if constant is None and moved is None:
            return seen
        if not await self._scores.are_scored(state.model_name, state.champion, state.challenger):
            return seen
        if are_different_scores_expected(await self._store.events(view.record.id)):
            return seen
        return seen._replace(constant_scores=constant, moved_scores=moved)

    async def _resolve_others(self, view: RolloutView, epoch: Epoch) -> None:
        """End the incidents that a command ended, in the environment of their alerts, which a command does not know."""
        record = view.record
        if self._left_at.get(record.id) != record.revision:
            alerts = alert_events(others_resolved(record.state), view, self._environment)
            await self._store.tell(alerts, epoch=epoch)
            self._left_at[record.id] = record.revision

    async def _warm_up_all(
        self, cold: Sequence[tuple[RolloutView, Observation]], failures: list[Exception], epoch: Epoch
    ) -> None:
        results: list[WarmedUp | BaseException] = await asyncio.gather(
            *(self._warmed_up(view, epoch) for view, _ in cold), return_exceptions=True
        )
        for (view, observation), result in zip(cold, results, strict=True):
            with _kept_apart(view.record.id, failures):
                if isinstance(result, BaseException):
                    raise result
                transition = next_step(view.record.state, replace(observation, warm_up=result.result))
                await self._carry_out(view, transition, Analysis(warmed_up=result), epoch)

    async def _warmed_up(self, view: RolloutView, epoch: Epoch) -> WarmedUp:
        state = view.record.state
        try:
            async with asyncio.timeout(WARM_UP_TICK_SECONDS):
                result = await self._warm_up.probe(state.model_name, state.challenger, epoch=epoch)
        except TimeoutError:
            result = WarmUpResult(passed=False, detail=f"it took longer than {WARM_UP_TICK_SECONDS:g} s")
        if not result.passed:
            _log.info("rollout.warm_up_failed", model=state.model_name, version=state.challenger, why=result.detail)
        if self._scores is None or not result.passed:
            return WarmedUp(result)
        was_resumed = state.limit_from > state.started_at
        agreement = await self._scores.compare(
            state.model_name,
            state.champion,
            state.challenger,
            view.read_at,
            prefers_log=was_resumed,
            through=Through(result.proxies, epoch),
        )
        found = WarmedUp(result, agreement, is_expected=state.plan.expect_different_scores)
        if found.result.scores_differ and was_resumed:
            events = await self._store.events(view.record.id)
            found = found._replace(is_expected=are_different_scores_expected(events))
        return found

    async def _carry_out(self, view: RolloutView, transition: Transition, seen: Analysis, epoch: Epoch) -> None:
        asks = [action for action in transition.actions if isinstance(action, AskGate)]
        if self._gates is not None and asks:
            self._gates.ask(transition.state, asks)
        if transition.state != at_seen_generation(view.record.state, view.policy) or _is_to_be_done(transition):
            await self._apply(view, transition, seen, epoch)

    async def _apply(self, view: RolloutView, transition: Transition, seen: Analysis, epoch: Epoch) -> None:
        decision = seen.decision or seen.after_promotion
        named, slices = named_keys(decision, transition.state), named_slices(decision, transition.state)
        tells = are_told_now(decision, transition.state)
        event, holds_scores = await _event_of(view, transition, seen)
        alerts = alert_events(transition.actions, view, self._environment, decision, seen.drift)
        if not await self._store.apply(view, transition, event, alerts, epoch=epoch):
            _log.info("rollout.moved_meanwhile", rollout_id=view.record.id)
            return
        self._left_at[view.record.id] = view.record.revision + 1
        state = transition.state
        if self._entities is not None:
            self._entities.told(view.record.id, named)
        if self._slices is not None:
            self._slices.told(view.record.id, slices)
        if tells:
            self._shared_errors.tell(view.record.id)
        _log.info(
            "rollout.transition", model=state.model_name, phase=state.phase, step=state.step, why=transition.event
        )
        holds = ((SCORES, holds_scores), (ENTITIES, named), (SLICES, slices), (SHARED_ERRORS, tells))
        held_by = next((why for why, is_why in holds if is_why), None)
        self._metrics.count(view.record.state, transition, decision, held_by=held_by)
        if state.phase.is_final:
            self._metrics.forget(view.record.id)


@contextmanager
def _kept_apart(rollout_id: int, failures: list[Exception]) -> Iterator[None]:
    """Gather a failure instead of raising it; only a lost leadership goes further."""
    try:
        yield
    except LeadershipLost:
        raise
    except Exception as problem:  # noqa: BLE001 - a row that cannot be read, or numbers that cannot be judged
        said = f"{type(problem).__name__}: {problem}"
        _log.warning("rollout.not_looked_at", rollout_id=rollout_id, problem=said)
        failures.append(problem)


async def _event_of(view: RolloutView, transition: Transition, seen: Analysis) -> tuple[NewRolloutEvent, bool]:
    """Return the event of a transition, with its verdict and what that rests on, and whether scores hold it."""
    before, after = view.record.state, transition.state
    if seen.warmed_up is not None:
        return seen.warmed_up.event(ACTOR, before, after), seen.warmed_up.holds(before, after)
    if seen.constant_scores is not None and is_held_by_warm_up(before, after):
        return constant_event(ACTOR, seen.constant_scores), True
    if seen.moved_scores is not None and is_held_by_warm_up(before, after):
        return await moved_event(ACTOR, seen.moved_scores), True
    if seen.decision is not None and seen.strata is not None:
        stored = await stored_strata(seen.strata)
        stored |= stored_entities(seen.entities, named_keys(seen.decision, after))
        stored |= stored_slices(seen.slices, named_slices(seen.decision, after))
        tells = are_told_now(seen.decision, after)
        stored |= stored_shared_errors(are_told=seen.are_shared_errors_told, tells=tells)
        stored |= {"drift": [one.to_json() for one in seen.drift]} if seen.drift else {}
        stored |= stored_metrics(seen.metrics)
        stored |= stored_judgements(seen.judgements)
        return judged_event(view, seen.decision, stored, seen.outcomes), False
    watched = seen.after_promotion
    if watched is not None and seen.watch is not None and watched.verdict is Verdict.ROLL_BACK:
        return await watch_event(view, watched, seen.watch), False  # the only one of its verdicts that is acted on
    return NewRolloutEvent(ACTOR), False


def _observation(view: RolloutView, seen: Analysis) -> Observation:
    return Observation(
        now=view.read_at,
        policy=view.policy,
        decision=seen.decision,
        decision_after_promotion=seen.after_promotion,
        requests=seen.requests,
        proxies=view.proxies,
        proxies_on_generation=view.proxies_on_generation,
        proxies_hidden=view.proxies_hidden,
        refused_scores=_refused_scores(seen),
        unvalidated=view.unvalidated,
        guard=view.guard,
    )


def _refused_scores(seen: Analysis) -> str:
    if seen.moved_scores is not None:
        return seen.moved_scores.words
    return "" if seen.constant_scores is None else constant_words(seen.constant_scores)


def _is_to_be_done(transition: Transition) -> bool:
    return any(not isinstance(action, Beside) for action in transition.actions)
