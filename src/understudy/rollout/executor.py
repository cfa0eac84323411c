"""Carries out what the state machine decides, for every open rollout, at every tick of the monitor."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import structlog

from understudy.core.after_promotion import judge_after_promotion
from understudy.core.alerts import AlertEvent
from understudy.core.decision import Decision
from understudy.core.policy import Role
from understudy.core.rollout import next_step
from understudy.core.rollout_actions import Alert, RollBack, WarmUp
from understudy.core.rollout_state import Look, Observation, Phase, Transition
from understudy.core.strata import stratify
from understudy.core.strata_text import strata_to_text
from understudy.core.windows import Window, merge_windows
from understudy.errors import LeadershipLost, UnderstudyError
from understudy.ports import Epoch, NewRolloutEvent, RolloutStore, RolloutView, Telemetry, WindowLog
from understudy.rollout.look import look_at, policy_of, stage_of
from understudy.rollout.warm_up import WarmUpProbe

_log = structlog.get_logger(__name__)

ACTOR = "monitor"
DRAIN_SECONDS = 30.0
"""How long a rollback waits for proxies and for calls in flight before it says that they did not come."""
ENOUGH_CALLS = 200
"""Answered calls of the champion that its 95th percentile is taken from, when nobody knew it at the start."""


class _Seen(NamedTuple):
    """What a tick made of a rollout's windows."""

    decision: Decision | None
    after_promotion: Decision | None
    requests: int


class RolloutExecutor:
    """Looks at each rollout, asks what comes next, and does it in one transaction.

    Args:
        store: Rollouts and the policies they change.
        windows: What the versions did.
        warm_up: Calls a version before callers do.
        telemetry: Gets transitions and rollbacks.
        environment: Named in alerts.
    """

    def __init__(
        self,
        store: RolloutStore,
        windows: WindowLog,
        warm_up: WarmUpProbe,
        telemetry: Telemetry,
        *,
        environment: str,
    ) -> None:
        self._store = store
        self._windows = windows
        self._warm_up = warm_up
        self._telemetry = telemetry
        self._environment = environment

    async def tick(self, epoch: Epoch) -> None:
        """Take every rollout at most one step further; one that fails keeps no other from its own.

        Raises:
            LeadershipLost: Another monitor leads; whatever was not written is that one's.
            UnderstudyError: The last failure, once all were looked at.
        """
        failure: UnderstudyError | None = None
        for rollout_id in await self._store.open_ids():
            try:
                await self._advance(rollout_id, epoch)
            except LeadershipLost:
                raise
            except UnderstudyError as problem:
                _log.warning("rollout.not_looked_at", rollout_id=rollout_id, problem=str(problem))
                failure = problem
        if failure is not None:
            raise failure

    async def _advance(self, rollout_id: int, epoch: Epoch) -> None:
        view = await self._store.view(rollout_id)
        if view.record.state.phase.is_final and view.record.finished_at is not None:
            await self._announce(view, epoch)
            return
        windows = await self._windows.of_rollout(rollout_id) if view.record.state.step_starts else ()
        await self._learn_threshold(view, windows, epoch)
        seen = await asyncio.to_thread(_see, view, windows)
        observation = _observation(view, seen)
        transition = next_step(view.record.state, observation)
        if any(isinstance(action, WarmUp) for action in transition.actions):
            result = await self._warm_up.probe(view.record.state.model_name, view.record.state.challenger)
            transition = next_step(view.record.state, replace(observation, warm_up=result))
        if transition.state != view.record.state or _is_to_be_done(transition):
            await self._apply(view, transition, seen, windows, epoch)

    async def _learn_threshold(self, view: RolloutView, windows: Sequence[Window], epoch: Epoch) -> None:
        """Freeze the champion's 95th percentile as soon as it is known."""
        if view.record.slow_us is not None:
            return
        champion = [window for window in windows if window.key.role is Role.CHAMPION]
        if sum(window.answered for window in champion) >= ENOUGH_CALLS:
            slow_us = merge_windows(champion[0].key, champion).latencies.quantile(0.95)
            await self._store.set_slow_us(view.record.id, round(slow_us or 0), epoch=epoch)

    async def _apply(
        self, view: RolloutView, transition: Transition, seen: _Seen, windows: Sequence[Window], epoch: Epoch
    ) -> None:
        decision = seen.decision or seen.after_promotion
        event = NewRolloutEvent(ACTOR)
        if decision is not None and seen.decision is not None:
            event = _judged(view, decision, windows)
        alerts = [self._alert(action, view, decision) for action in transition.actions if isinstance(action, Alert)]
        if not await self._store.apply(view, transition, event, alerts, epoch=epoch):
            _log.info("rollout.moved_meanwhile", rollout_id=view.record.id)
            return
        state = transition.state
        _log.info(
            "rollout.transition", model=state.model_name, phase=state.phase, step=state.step, why=transition.event
        )
        self._telemetry.count("rollout_transitions_total", state.model_name, state.phase)
        if any(isinstance(action, RollBack) for action in transition.actions):
            self._telemetry.count("rollbacks_total", state.model_name)

    def _alert(self, alert: Alert, view: RolloutView, decision: Decision | None) -> AlertEvent:
        state = view.record.state
        details = {
            "rollout": view.record.id,
            "champion": state.champion,
            "challenger": state.challenger,
            "weight_percent": state.weight_percent,
            "checks": [] if decision is None else [row.to_json() for row in decision.evidence],
            "next": f"understudy rollout show {state.model_name} {view.record.id}",
        }
        return AlertEvent(
            alert.action, alert.kind, self._environment, state.model_name, alert.summary, view.read_at, details
        )

    async def _announce(self, view: RolloutView, epoch: Epoch) -> None:
        """Write down when the end had reached every proxy and nothing was in flight any more, or that it had not."""
        record = view.record
        seconds = view.read_at - (record.finished_at or view.read_at)
        left = 0 if record.state.phase is Phase.SUCCEEDED else view.in_flight.get(record.challenger_id, 0)
        is_everywhere = view.proxies_on_generation >= view.proxies
        if seconds < DRAIN_SECONDS and not (is_everywhere and left == 0):
            return
        reason = (
            f"{view.proxies_on_generation} of {view.proxies} proxies have confirmed the end after {seconds:.1f} s; "
            f"{left} calls in flight at version {record.state.challenger}"
        )
        inputs = {
            "seconds": seconds,
            "proxies": view.proxies,
            "proxies_on_generation": view.proxies_on_generation,
            "in_flight": left,
        }
        await self._store.announce(view, reason, NewRolloutEvent(ACTOR, inputs=inputs), epoch=epoch)


def _see(view: RolloutView, windows: Sequence[Window]) -> _Seen:
    """Judge the windows; a processor's work, so not on the event loop."""
    state = view.record.state
    if not state.step_starts:
        return _Seen(None, None, 0)
    started = state.step_started_at
    requests = sum(w.calls for w in windows if w.key.role is Role.CHALLENGER and w.key.start >= started)
    if state.promoted_at is None:
        return _Seen(look_at(view, windows, view.read_at), None, requests)
    record = view.record
    after = judge_after_promotion(windows, stage_of(view), record.champion_id, record.challenger_id, view.read_at)
    return _Seen(None, after, requests)


def _observation(view: RolloutView, seen: _Seen) -> Observation:
    return Observation(
        now=view.read_at,
        policy=view.policy,
        decision=_word(seen.decision),
        decision_after_promotion=_word(seen.after_promotion),
        requests=seen.requests,
        proxies=view.proxies,
        proxies_on_generation=view.proxies_on_generation,
    )


def _word(decision: Decision | None) -> Look | None:
    return None if decision is None else Look(decision.verdict, decision.reason)


def _is_to_be_done(transition: Transition) -> bool:
    return any(not isinstance(action, WarmUp) for action in transition.actions)


def _judged(view: RolloutView, decision: Decision, windows: Sequence[Window]) -> NewRolloutEvent:
    """Return the event of a decision with everything that it takes to make it again."""
    return NewRolloutEvent(
        ACTOR,
        decision.verdict,
        [row.to_json() for row in decision.evidence],
        {
            "now": view.read_at,
            "stage": asdict(stage_of(view)),
            "strata": strata_to_text(stratify(windows, view.record.id)),
            "decision": decision.reason,
        },
        policy_of(view).to_json(),
    )
