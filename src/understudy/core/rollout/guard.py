"""A guard's rules: it watches a split that an operator set, takes it back or alerts, and moves nothing else.

The database opens a guard with the split and ends it with the split, in the same transaction. What it ends it does with
the rows that no session holds; for the others the guard is over here, at the next tick.
"""

from dataclasses import replace

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.canary.decision import Verdict
from understudy.core.durations import duration_words
from understudy.core.rollout.actions import Alert
from understudy.core.rollout.guard_limits import NO_LIMITS, limits_words, with_limits
from understudy.core.rollout.policy_conflict import are_roles_ours, is_new_conflict
from understudy.core.rollout.state import CommandKind, GuardMode, Observation, Phase, RolloutState, Transition
from understudy.core.rollout.transitions import earlier_resolved, moved, resolved

GUARD_SECONDS = 86_400.0
"""After how long a guard ends and the next one begins, unless settings say otherwise. An analysis judges all of its
windows, and a day of them takes some 42 MB of the monitor's memory (5,760 of 7.3 KB)."""


def is_over(state: RolloutState, observation: Observation) -> Transition | None:
    """End a guard whose split is there no more."""
    seen = observation.policy
    if seen is not None and are_roles_ours(state, seen) and (seen.weight_percent > 0 or state.promoted_at is not None):
        return None
    return _ended(state, "over: the split is there no more")


def begins(state: RolloutState, observation: Observation) -> Transition | None:
    """Begin to judge, from the moment on in which the split was set; the incidents of earlier ones are answered."""
    if state.step_starts:
        return None
    event = f"judges version {state.challenger} at {state.weight_percent} % against version {state.champion}"
    # Both versions are compared at the same time, at which a new champion has none beside it.
    limits = observation.guard_limits if state.promoted_at is None else NO_LIMITS
    if state.promoted_at is not None:
        event = f"judges champion {state.challenger} against what version {state.champion} did before"
    elif also := limits_words(limits):
        event += f", and by {also}"
    begun = replace(state, step_starts=(state.started_at,), plan=with_limits(state.plan, limits))
    return Transition(begun, (*earlier_resolved(state), moved(state, event)), event)


def follows_operator(state: RolloutState, observation: Observation) -> Transition | None:
    """Let a guard take over another share that an operator set: the evidence so far still counts."""
    seen = observation.policy
    if seen is None or not is_new_conflict(state, seen):
        return None
    event = f"version {state.challenger} goes from {state.weight_percent} to {seen.weight_percent} %"
    if state.promoted_at is not None:
        event = f"version {state.challenger} stays champion"
    event += f" in generation {seen.generation}"
    return Transition(replace(state, policy=seen), (), event)


def alerts(state: RolloutState, observation: Observation) -> Transition | None:
    """Alert, once, of a challenger that does worse where the policy lets a guard change nothing."""
    decision = observation.decision if state.promoted_at is None else observation.decision_after_promotion
    if decision is None or decision.verdict is not Verdict.ROLL_BACK or observation.guard is GuardMode.ROLLBACK:
        return None
    if state.has_failed_guard or not state.step_starts:
        return None
    why = f"version {state.challenger} does worse at {state.weight_percent} %: {decision.reason}"
    failed = replace(state, phase=Phase.WAITING, waiting_for=None, reason=why)
    summary = f"{state.model_name}: {why}; guard = alert changes nothing"
    return Transition(failed, (Alert(AlertKind.GUARD_FAILED, AlertAction.TRIGGER, summary), *resolved(state)), why)


def refuses(state: RolloutState, observation: Observation) -> Transition | None:
    """Say what a command that a guard does not know would do instead; it may be told that the split is fine again."""
    command = observation.command
    if command is None or (command.kind is CommandKind.RESUME and state.waiting_for is not None):
        return None
    instead = "a guard moves nothing: understudy model set changes the share and the guard, abort takes the share back"
    return Transition(state, (), instead)


def keeps_warm(state: RolloutState, observation: Observation, kept: Transition | None) -> Transition | None:
    """Do what a rollout does with the old champion (``kept``), and retire it only where the policy lets a guard act."""
    if kept is None or not kept.state.phase.is_final:
        return kept
    if observation.guard is GuardMode.ROLLBACK and not state.has_failed_guard:
        return kept
    return _ended(state, f"over: version {state.champion} is kept warm no longer, and is not retired")


def renews(state: RolloutState, observation: Observation) -> Transition | None:
    """End a guard that is old; the database opens the next one, whose evidence begins anew."""
    age = observation.now - state.started_at
    if age < observation.guard_seconds:
        return None
    return _ended(state, f"over after {duration_words(age)}: the next guard begins with new evidence")


def watches(state: RolloutState, observation: Observation) -> Transition:
    """Stay."""
    said = observation.decision.reason if observation.decision is not None else "no verdict yet"
    return Transition(state, (), state.reason or f"watches at {state.weight_percent} %: {said}")


def _ended(state: RolloutState, event: str) -> Transition:
    phase, reason = Phase.SUCCEEDED, event
    if state.has_failed_guard:
        phase, reason = Phase.FAILED, f"{state.reason}; {event}"
    ended = replace(state, phase=phase, waiting_for=None, reason=reason)
    return Transition(ended, resolved(state), event)
