"""Carries out what the state machine decides, for every open rollout, at every tick of the monitor."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

import structlog

from understudy.core.canary.constant_scores import LiveScores, constant_words
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.glance import GLANCE_SECONDS
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.actions import WarmUp
from understudy.core.rollout.guard import GUARD_SECONDS
from understudy.core.rollout.policy_conflict import at_seen_generation
from understudy.core.rollout.state import Kind, Observation, Phase, Transition, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.core.rollout.transitions import others_resolved
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, is_confirmed_since, stale_proxies_words
from understudy.core.statistics.difference import Difference
from understudy.core.windows.strata import Strata
from understudy.core.windows.strata_codec import strata_digest, strata_to_text
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.errors import LeadershipLost
from understudy.ports.lease import Epoch
from understudy.ports.rollout_store import NewRolloutEvent, RolloutStore, RolloutView
from understudy.ports.telemetry import Telemetry
from understudy.ports.window_log import WindowLog
from understudy.rollout.alert_events import alert_events
from understudy.rollout.analysis import (
    Analysis,
    analysis_after_promotion,
    analysis_of_strata,
    analysis_of_windows,
    glance,
    policy_of,
    read_after_promotion,
    stage_of,
)
from understudy.rollout.calm_guards import CalmGuards, Turn
from understudy.rollout.constant_scores import ConstantScores
from understudy.rollout.entity_check import EntityCheck
from understudy.rollout.entity_verdict import named_keys, stored_entities
from understudy.rollout.metrics import ENTITIES, SCORES, SHARED_ERRORS, RolloutMetrics, Trigger
from understudy.rollout.score_comparison import ScoreComparison
from understudy.rollout.shared_errors import SharedErrors, are_told_now, stored_shared_errors
from understudy.rollout.start import TRAFFIC_SECONDS
from understudy.rollout.time_allowed import champion_p95_us
from understudy.rollout.warm_up import WarmUpProbe
from understudy.rollout.warm_up_verdict import (
    WarmedUp,
    are_different_scores_expected,
    constant_event,
    is_held_by_warm_up,
)
from understudy.rollout.window_cache import WindowCache

_log = structlog.get_logger(__name__)

ACTOR = "monitor"
DRAIN_SECONDS = 30.0
"""How long a rollback waits for proxies and for calls in flight before it says that they did not come."""
WARM_UP_TICK_SECONDS = 10.0
"""Longest warm-up of one tick: while a version hangs, the other rollouts wait this much longer at most."""

TICK_SECONDS = 5.0
"""Time between two ticks, unless settings say otherwise."""
WATCH_TICKS = 12
"""The first of so many ticks, a minute of them by default, looks for splits without a guard: the database opens all but
those of a release before."""
READ_SECONDS = 5.0
"""How long a tick reads windows of one rollout: after a restart of the monitor a long one takes several ticks."""
MAX_STORED_WINDOWS = 5_760
"""A day of windows is stored with a verdict, some megabytes; of more only a digest: callers wait for the rollback."""
PACK_SECONDS = 5.0
"""Longest time in which a decision waits for what is stored with it."""


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
        outcome_of: What the outcome that a rollout declared came to of late, challenger less champion, by its id.
        warm_up: Calls a version before callers do.
        telemetry: Gets steps, checks, transitions and rollbacks.
        entities: Counts the calls of single entities; ``None`` names none.
        scores: Compares a version's scores with the champion's before callers get any; ``None`` compares none.
        environment: Named in alerts.
        guard_seconds: After how long a guard's evidence begins anew.
        tick_seconds: Time between two ticks.
    """

    def __init__(
        self,
        store: RolloutStore,
        windows: WindowLog,
        outcome_of: Callable[[int], Difference | None],
        warm_up: WarmUpProbe,
        telemetry: Telemetry,
        *,
        scores: ScoreComparison | None = None,
        entities: EntityCheck | None = None,
        environment: str,
        guard_seconds: float = GUARD_SECONDS,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._store = store
        self._windows = windows
        self._outcome_of = outcome_of
        self._warm_up = warm_up
        self._scores = scores
        self._entities = entities
        self._shared_errors = SharedErrors(store)
        self._metrics = RolloutMetrics(telemetry)
        self._environment = environment
        self._guard_seconds = guard_seconds
        self._window_cache = WindowCache(windows)
        self._constant = ConstantScores(windows)
        self._calm_guards = CalmGuards(tick_seconds)
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
        self._window_cache.forget_others(rollout_ids)
        self._constant.forget_others(rollout_ids)
        self._shared_errors.forget_others(rollout_ids)
        self._metrics.forget_others(rollout_ids)
        self._left_at = {known: self._left_at[known] for known in rollout_ids if known in self._left_at}
        failures: list[Exception] = []
        cold: list[tuple[RolloutView, Observation]] = []
        turns = self._calm_guards.turns(rollout_ids, await self._store.guard_ids())
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
            await self._announce(view, epoch)
            return None
        looked = await self._look(view, turn, epoch)
        if looked is None:
            _log.info("rollout.still_reading", rollout_id=rollout_id)
            return None
        view, seen = looked
        if seen.decision is None or seen.decision.verdict is not Verdict.ROLL_BACK:  # callers wait for a rollback
            seen = seen._replace(constant_scores=await self._constant_scores(view))
        observation = replace(_observation(view, seen), guard_seconds=self._guard_seconds)
        transition = next_step(view.record.state, observation)
        if any(isinstance(action, WarmUp) for action in transition.actions):
            return view, observation
        await self._carry_out(view, transition, seen, epoch)
        return None

    async def _constant_scores(self, view: RolloutView) -> LiveScores | None:
        """Return the scores of a challenger that are all the same, unless that is expected."""
        state = view.record.state
        if self._scores is None or state.plan.expect_different_scores:
            return None
        found = await self._constant.look(view)
        if found is None:
            return None
        if not await self._scores.are_scored(state.model_name, state.champion, state.challenger):
            return None
        events = await self._store.events(view.record.id)
        return None if are_different_scores_expected(events) else found

    async def _look(self, view: RolloutView, turn: Turn, epoch: Epoch) -> tuple[RolloutView, Analysis] | None:
        """Analyse a rollout, or glance at it; ``None`` while there are more windows than a tick can read."""
        if turn is Turn.GLANCE and not await self._looks_worse(view):
            self._calm_guards.glanced(view.record.id)
            return view, Analysis()  # what was analysed last stays what the metrics show
        view = await self._window_cache.with_champion_before(view)
        seen = await self._see(view, epoch)
        if seen is None:
            return None
        self._calm_guards.analysed(view, seen.decision, is_worse=seen.is_worse)
        self._metrics.show(view, seen.decision or seen.after_promotion)
        return view, seen

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
            *(self._warmed_up(view) for view, _ in cold), return_exceptions=True
        )
        for (view, observation), result in zip(cold, results, strict=True):
            with _kept_apart(view.record.id, failures):
                if isinstance(result, BaseException):
                    raise result
                transition = next_step(view.record.state, replace(observation, warm_up=result.result))
                await self._carry_out(view, transition, Analysis(warmed_up=result), epoch)

    async def _warmed_up(self, view: RolloutView) -> WarmedUp:
        state = view.record.state
        try:
            async with asyncio.timeout(WARM_UP_TICK_SECONDS):
                result = await self._warm_up.probe(state.model_name, state.challenger)
        except TimeoutError:
            result = WarmUpResult(passed=False, detail=f"it took longer than {WARM_UP_TICK_SECONDS:g} s")
        if self._scores is None or not result.passed:
            return WarmedUp(result)
        was_resumed = state.limit_from > state.started_at
        agreement = await self._scores.compare(
            state.model_name, state.champion, state.challenger, view.read_at, prefers_log=was_resumed
        )
        found = WarmedUp(result, agreement, is_expected=state.plan.expect_different_scores)
        if found.result.scores_differ and was_resumed:
            events = await self._store.events(view.record.id)
            found = found._replace(is_expected=are_different_scores_expected(events))
        return found

    async def _carry_out(self, view: RolloutView, transition: Transition, seen: Analysis, epoch: Epoch) -> None:
        if transition.state != at_seen_generation(view.record.state, view.policy) or _is_to_be_done(transition):
            await self._apply(view, transition, seen, epoch)

    async def _see(self, view: RolloutView, epoch: Epoch) -> Analysis | None:
        """Read as many windows as it takes and judge them: a processor's work, so not on the event loop.

        ``None`` while there are more than can be read in a tick; what was read is kept.
        """
        record = view.record
        state = record.state
        if not state.step_starts:
            if state.kind is Kind.GUARD:
                since = view.read_at - TRAFFIC_SECONDS
                alone = await self._windows.of_versions([record.champion_id], since, view.read_at)
                await self._learn_threshold(view, alone, epoch)
            return Analysis()
        if state.promoted_at is not None:
            since_promotion = await read_after_promotion(self._windows, view)
            return await asyncio.to_thread(analysis_after_promotion, view, since_promotion)
        if record.slow_us is None or state.plan.canary_policy == SEED:
            windows = await self._windows.of_rollout(record.id)
            await self._learn_threshold(view, windows, epoch)
            return await asyncio.to_thread(analysis_of_windows, view, windows, self._outcome_of(record.id))
        strata = await self._window_cache.strata(
            record.id, view.read_at, started_at=state.started_at, seconds=READ_SECONDS
        )
        if strata is None:
            return None
        return await self._judge(view, strata)

    async def _judge(self, view: RolloutView, strata: Strata) -> Analysis:
        """Judge windows; errors that the champion had as well hold nothing once an operator was told of them."""
        record = view.record
        entities = None if self._entities is None else self._entities.latest(record.id)
        given = (view, strata, self._outcome_of(record.id), entities)
        is_known = self._shared_errors.is_known(record.id)
        found = await asyncio.to_thread(analysis_of_strata, *given, are_shared_errors_told=is_known)
        if found.decision is None or not found.decision.has_shared_errors:
            return found
        if not await self._shared_errors.was_told(record.id):
            return found
        return await asyncio.to_thread(analysis_of_strata, *given, are_shared_errors_told=True)

    async def _looks_worse(self, view: RolloutView) -> bool:
        """Whether a guard that was calm is to be analysed now."""
        if not self._calm_guards.is_calm(view):
            return True
        if view.record.state.has_failed_guard:
            return False
        since = view.read_at - GLANCE_SECONDS - WINDOW_SECONDS
        windows = await self._windows.of_rollout(view.record.id, since)
        return await asyncio.to_thread(glance, view, windows)

    async def _learn_threshold(self, view: RolloutView, windows: Sequence[Window], epoch: Epoch) -> None:
        """Freeze the champion's 95th percentile as soon as it is known."""
        if view.record.slow_us is not None:
            return
        slow_us = champion_p95_us(windows, view.record.champion_id)
        if slow_us is not None:
            await self._store.set_slow_us(view.record.id, slow_us, epoch=epoch)

    async def _apply(self, view: RolloutView, transition: Transition, seen: Analysis, epoch: Epoch) -> None:
        decision = seen.decision or seen.after_promotion
        event = NewRolloutEvent(ACTOR)
        holds_scores = False
        named, tells = named_keys(decision, transition.state), are_told_now(decision, transition.state)
        if seen.warmed_up is not None:
            event = seen.warmed_up.event(ACTOR, view.record.state, transition.state)
            holds_scores = seen.warmed_up.holds(view.record.state, transition.state)
        elif seen.constant_scores is not None and is_held_by_warm_up(view.record.state, transition.state):
            event, holds_scores = constant_event(ACTOR, seen.constant_scores), True
        elif seen.decision is not None and seen.strata is not None:
            stored = await _stored(seen.strata)
            stored |= stored_entities(seen.entities, named)
            stored |= stored_shared_errors(are_told=seen.are_shared_errors_told, tells=tells)
            event = _judged(view, seen.decision, stored, seen.outcome)
        alerts = alert_events(transition.actions, view, self._environment, decision)
        if not await self._store.apply(view, transition, event, alerts, epoch=epoch):
            _log.info("rollout.moved_meanwhile", rollout_id=view.record.id)
            return
        self._left_at[view.record.id] = view.record.revision + 1
        state = transition.state
        if self._entities is not None:
            self._entities.told(view.record.id, named)
        if tells:
            self._shared_errors.tell(view.record.id)
        _log.info(
            "rollout.transition", model=state.model_name, phase=state.phase, step=state.step, why=transition.event
        )
        held_by = SCORES if holds_scores else ENTITIES if named else SHARED_ERRORS if tells else None
        self._metrics.count(view.record.state, transition, decision, held_by=held_by)
        if state.phase.is_final:
            self._metrics.forget(view.record.id)

    async def _announce(self, view: RolloutView, epoch: Epoch) -> None:
        """Write down when the end had reached every live proxy and nothing was in flight any more, or that it had not.

        Without any live proxy it is written down at once that the end is unconfirmed; where the reports of proxies
        cannot be read, after the time of draining.
        """
        record = view.record
        seconds = view.read_at - (record.finished_at or view.read_at)
        # A challenger that is champion now keeps its calls.
        left = None if record.state.phase is Phase.SUCCEEDED else view.in_flight.get(record.challenger_id, 0)
        is_everywhere = is_confirmed_since(view.proxies, view.proxies_on_generation, view.stale, seconds)
        if (view.proxies or view.proxies_hidden) and seconds < DRAIN_SECONDS and not (is_everywhere and not left):
            return
        inputs = {
            "seconds": seconds,
            "proxies": view.proxies,
            "proxies_on_generation": view.proxies_on_generation,
            "in_flight": left if view.proxies else None,
            "silent": view.stale.to_json(),
        }
        event = NewRolloutEvent(ACTOR, inputs=inputs)
        await self._store.announce(view, _end_words(view, seconds, left), event, epoch=epoch)
        if record.state.phase is Phase.FAILED:
            await self._count_end(view, seconds if is_everywhere else None)

    async def _count_end(self, view: RolloutView, seconds: float | None) -> None:
        """Count what only the end tells: an abort, which no tick decided, and how long the rollback took."""
        record = view.record
        events = await self._store.events(record.id)
        ended = next((event for event in events if event.phase == Phase.FAILED), None)
        if ended is not None and ended.actor != ACTOR:
            is_guard = record.state.kind is Kind.GUARD
            self._metrics.count_rollback(record.state.model_name, Trigger.BY_HAND if is_guard else Trigger.COMMAND)
        if seconds is not None:
            self._metrics.took(record.state.model_name, seconds)


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
        constant_scores="" if seen.constant_scores is None else constant_words(seen.constant_scores),
        guard=view.guard,
    )


def _end_words(view: RolloutView, seconds: float, left: int | None) -> str:
    """Return how far the end of a rollout has come, with ``left`` calls in flight at its challenger if that drains."""
    confirmed = (
        f"{view.proxies_on_generation} of {view.proxies} live proxies have confirmed the end after {seconds:.1f} s"
    )
    in_flight = "" if left is None else f"{left} calls in flight at version {view.record.state.challenger}"
    unseen = HIDDEN_WORDS if view.proxies_hidden else "no live proxy"
    said = [confirmed, in_flight] if view.proxies else [f"{unseen}: the end is unconfirmed"]
    return "; ".join(filter(None, [*said, stale_proxies_words(view.stale)]))


def _is_to_be_done(transition: Transition) -> bool:
    return any(not isinstance(action, WarmUp) for action in transition.actions)


async def _stored(strata: Strata) -> dict[str, object]:
    """Return what is stored of the strata; the decision waits for it a bounded time, and is made without it as well."""
    try:
        async with asyncio.timeout(PACK_SECONDS):
            return await asyncio.to_thread(_packed, strata)
    except Exception as problem:  # noqa: BLE001 - whatever it is, callers of a bad version wait for the rollback
        said = f"{type(problem).__name__}: {problem}"
        _log.warning("rollout.verdict_not_stored", windows=len(strata.starts), problem=said)
        return {"strata_windows": len(strata.starts)}


def _packed(strata: Strata) -> dict[str, object]:
    if len(strata.starts) <= MAX_STORED_WINDOWS:
        return {"strata": strata_to_text(strata)}
    return {"strata_windows": len(strata.starts), "strata_sha256": strata_digest(strata)}


def _judged(
    view: RolloutView, decision: Decision, stored: Mapping[str, object], outcome: Difference | None
) -> NewRolloutEvent:
    """Return the event of a decision with ``stored``, everything that it takes to make it again."""
    return NewRolloutEvent(
        ACTOR,
        decision.verdict,
        [row.to_json() for row in decision.evidence],
        {
            "now": view.read_at,
            "stage": asdict(stage_of(view)),
            **stored,
            "outcome": None if outcome is None else outcome._asdict(),
            "decision": decision.sentence,
        },
        policy_of(view).to_json(),
    )
