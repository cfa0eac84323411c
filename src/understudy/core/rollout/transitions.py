"""The moves of a rollout that its rules choose from, and the policy change that each asks for."""

from dataclasses import replace

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.rollout.actions import Alert, PolicyAction, PolicySeen, Promote, RollBack, SetWeight
from understudy.core.rollout.plan import WHOLE_PERCENT
from understudy.core.rollout.policy_conflict import are_roles_ours
from understudy.core.rollout.state import WAITING_ALERTS, Phase, RolloutState, Transition, WaitingFor


def entered(state: RolloutState, seen: PolicySeen, now: float, why: str) -> Transition:
    """Enter the next step; the last one makes the challenger the champion."""
    step = state.plan.steps[len(state.step_starts)]
    is_last = step.weight_percent == WHOLE_PERCENT
    action: PolicyAction = SetWeight(step.weight_percent, seen.generation)
    event = f"version {state.challenger} goes from {state.weight_percent} to {step.weight_percent} %: {why}"
    if is_last:
        action = Promote(state.challenger, seen.generation)
        event = f"version {state.challenger} becomes champion in the place of {state.champion}: {why}"
    there = replace(
        state,
        phase=Phase.PROMOTING if is_last else Phase.PROGRESSING,
        step_starts=(*state.step_starts, now),
        limit_from=now,
        waiting_for=None,
        reason="",
        promoted_at=now if is_last else None,
        approved_step=None,
        gate=None,
        policy=action.result(seen),
    )
    earlier = () if state.step_starts else earlier_resolved(state)
    return Transition(there, (action, *resolved(state), *earlier, moved(state, event)), event)


def waiting(state: RolloutState, why: WaitingFor, reason: str) -> Transition:
    """Stay at this share until an operator says how to go on; alert, unless an operator has paused it."""
    kind = WAITING_ALERTS.get(why)
    alerts = [alert for alert in resolved(state) if alert.kind is not kind]
    if kind is not None:
        alerts.append(Alert(kind, AlertAction.TRIGGER, f"{state.model_name}: {reason}"))
    stopped = replace(state, phase=Phase.WAITING, waiting_for=why, reason=reason)
    return Transition(stopped, tuple(alerts), reason)


def resolved(state: RolloutState) -> tuple[Alert, ...]:
    """Return the resolve of the alert that the rollout waits, if there was one."""
    kind = _alert_of(state)
    summary = f"{state.model_name}: the {state.kind} of version {state.challenger} does not wait any more"
    return () if kind is None else (Alert(kind, AlertAction.RESOLVE, summary),)


def others_resolved(state: RolloutState) -> tuple[Alert, ...]:
    """Return what ends every incident of a rollout that waits, but for the one that it waits for now."""
    now = _alert_of(state)
    summary = f"{state.model_name}: the {state.kind} of version {state.challenger} does not wait for that any more"
    kinds = dict.fromkeys((*WAITING_ALERTS.values(), AlertKind.GUARD_FAILED))
    return tuple(Alert(kind, AlertAction.RESOLVE, summary) for kind in kinds if kind is not now)


def _alert_of(state: RolloutState) -> AlertKind | None:
    if state.has_failed_guard:
        return AlertKind.GUARD_FAILED
    return None if state.waiting_for is None else WAITING_ALERTS.get(state.waiting_for)


def earlier_resolved(state: RolloutState) -> tuple[Alert, ...]:
    """Return the resolves of earlier rollouts' incidents: starting the next rollout answers them."""
    summary = f"{state.model_name}: a {state.kind} of version {state.challenger} has begun"
    kinds = (AlertKind.CANARY_ROLLED_BACK, AlertKind.CHAMPION_REGRESSED)
    return tuple(Alert(kind, AlertAction.RESOLVE, summary) for kind in kinds)


def moved(state: RolloutState, event: str) -> Alert:
    """Return the note that a rollout changed something: a change event for the search of an incident's cause."""
    return Alert(AlertKind.ROLLOUT_MOVED, AlertAction.CHANGE, f"{state.model_name}: {event}")


def action_to(state: RolloutState, seen: PolicySeen) -> PolicyAction:
    """Return the action that makes the policy of the state out of the one before."""
    if state.phase is Phase.FAILED:
        return RollBack(state.champion, state.challenger, state.reason, seen)
    if state.promoted_at is not None:
        return Promote(state.challenger, seen.generation)
    return SetWeight(state.policy.weight_percent, seen.generation)


def taken_back(state: RolloutState, seen: PolicySeen | None, reason: str, *alerts: Alert) -> Transition:
    """End the rollout with weight 0 and the old champion, as far as the roles are still the rollout's own."""
    failed = replace(state, phase=Phase.FAILED, waiting_for=None, reason=reason)
    told = (*alerts, *resolved(state), moved(state, reason))
    if seen is None or not are_roles_ours(state, seen):
        return Transition(failed, told, f"{reason}; the policy is no longer the rollout's and stays as it is")
    if seen.champion == state.champion and seen.weight_percent == 0:
        return Transition(replace(failed, policy=seen), told, reason)
    roll_back = RollBack(state.champion, state.challenger, reason, seen)
    return Transition(replace(failed, policy=roll_back.result(seen)), (roll_back, *told), reason)
