"""A rollout as a state machine: what to do next, given what is remembered and what is seen.

``next_step`` decides and does nothing; it is called at every tick with everything that was read, and the same state and
observation give the same answer whenever and wherever they are asked. Its rules stand in :data:`_RULES` in the order in
which they are asked; the first one that answers decides, so that one tick is at most one step. A guard has its own,
:data:`_GUARD_RULES`.

What holds whatever comes: a step is never skipped; the weight only goes to the next step's, back to its own step's, or
to 0; a policy changed outside the rollout is not touched before an operator has decided, except to roll the
challenger back while the roles are still the rollout's own; a final phase is never left.
"""

from collections.abc import Callable
from dataclasses import replace

from understudy.core.alerts.alerts import AlertAction, AlertKind
from understudy.core.canary.decision import Verdict
from understudy.core.durations import duration_words
from understudy.core.rollout import guard
from understudy.core.rollout.actions import Alert, RetireOld, SetWeight, WarmUp
from understudy.core.rollout.at_gate import answered, asks_again, asks_on, goes_on, is_open, to_gate
from understudy.core.rollout.freeze import freeze_words, unfrozen_seconds
from understudy.core.rollout.gates import closed_gate, next_words
from understudy.core.rollout.plan import Strategy
from understudy.core.rollout.policy_conflict import are_roles_ours, at_seen_generation, conflict_words, is_new_conflict
from understudy.core.rollout.proxy_warm_up import through_words
from understudy.core.rollout.state import (
    CommandKind,
    GuardMode,
    Kind,
    Observation,
    Phase,
    RolloutState,
    Transition,
    WaitingFor,
    WarmUpResult,
)
from understudy.core.rollout.transitions import (
    action_to,
    entered,
    moved,
    resolved,
    taken_back,
    waiting,
)
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, is_confirmed, live_proxies_words

WARM_UP_SECONDS = 300.0
"""How long the challenger may fail its warm-up before an operator is alerted: a model takes time to load."""
UNKNOWN_SECONDS = 60.0
"""How much longer if no warm-up comes to a result."""
BY_HAND = "rolled back by hand"
ABORTED = "aborted"
"""How the reason of such an end begins; the audit says by whom."""


def next_step(state: RolloutState, observation: Observation) -> Transition:
    """Return the state after a tick, the actions that lead there, and what to write down."""
    state = at_seen_generation(state, observation.policy)
    rules = _GUARD_RULES if state.kind is Kind.GUARD else _RULES
    return next(found for rule in rules if (found := rule(state, observation)) is not None)


# -- what is over, and what ends it ------------------------------------------------------------------------------------


def _finished(state: RolloutState, observation: Observation) -> Transition | None:
    """Stay; only a rollback that was decided and not carried out is asked for again."""
    if not state.phase.is_final:
        return None
    seen = observation.policy
    missing = state.phase is Phase.FAILED and seen is not None and state.has_unapplied_action(seen)
    return Transition(state, (action_to(state, seen),) if missing and seen else (), state.reason)


def _aborted(state: RolloutState, observation: Observation) -> Transition | None:
    if observation.command is None or observation.command.kind is not CommandKind.ABORT:
        return None
    return taken_back(state, observation.policy, f"{ABORTED} {_by(observation)}")


def _undone_by_hand(state: RolloutState, observation: Observation) -> Transition | None:
    """Weight 0, or the old champion in its place again, set outside the rollout: an operator has decided."""
    seen = observation.policy
    if seen is None or seen.generation < state.policy.generation or seen.champion != state.champion:
        return None
    took_weight = state.policy.weight_percent > 0 and seen.weight_percent == 0
    if not (took_weight and seen.challenger in (state.challenger, None)) and state.promoted_at is None:
        return None
    reason = f"{BY_HAND}: champion {seen.champion}, weight {seen.weight_percent} in generation {seen.generation}"
    failed = replace(state, phase=Phase.FAILED, waiting_for=None, reason=reason, policy=seen)
    return Transition(failed, (*resolved(state), moved(state, reason)), reason)


def _rolled_back_on_evidence(state: RolloutState, observation: Observation) -> Transition | None:
    """The guardrail, which also watches while the rollout waits for an operator."""
    seen, is_promoted = observation.policy, state.promoted_at is not None
    decision = observation.decision_after_promotion if is_promoted else observation.decision
    if decision is None or decision.verdict is not Verdict.ROLL_BACK or not state.step_starts:
        return None
    if seen is None or not are_roles_ours(state, seen) or is_new_conflict(state, seen):
        return None
    said = decision.reason
    if is_promoted:
        why = f"version {state.champion} is champion again, version {state.challenger} got worse: {said}"
        kind = AlertKind.CHAMPION_REGRESSED
    else:
        why = f"version {state.challenger} rolled back at {seen.weight_percent} %: {said}"
        kind = AlertKind.CANARY_ROLLED_BACK
    return taken_back(state, seen, why, Alert(kind, AlertAction.TRIGGER, f"{state.model_name}: {why}"))


def _guard_rolls_back(state: RolloutState, observation: Observation) -> Transition | None:
    return _rolled_back_on_evidence(state, observation) if observation.guard is GuardMode.ROLLBACK else None


def _guard_keeps_warm(state: RolloutState, observation: Observation) -> Transition | None:
    return guard.keeps_warm(state, observation, _kept_warm(state, observation))


# -- the policy is not as it was left ----------------------------------------------------------------------------------


def _repeated(state: RolloutState, observation: Observation) -> Transition | None:
    """Ask again for an action that was decided and never carried out; the step begins now."""
    seen = observation.policy
    if seen is None or not state.has_unapplied_action(seen):
        return None
    now = observation.now
    starts = (*state.step_starts[:-1], now)
    promoted_at = None if state.promoted_at is None else now
    again = replace(state, step_starts=starts, limit_from=now, promoted_at=promoted_at)
    return Transition(again, (action_to(state, seen),), "asks again for the last change of the policy")


def _conflicting(state: RolloutState, observation: Observation) -> Transition | None:
    """The policy was changed outside the rollout: touch nothing, wait for an operator."""
    seen = observation.policy
    if seen is not None and not is_new_conflict(state, seen):
        return None
    if seen is None and state.waiting_for is WaitingFor.CONFLICT:
        return None
    return waiting(state, WaitingFor.CONFLICT, conflict_words(state.policy, seen))


# -- commands ----------------------------------------------------------------------------------------------------------


def _paused(state: RolloutState, observation: Observation) -> Transition | None:
    command = observation.command
    if command is None or command.kind is not CommandKind.PAUSE:
        return None
    if state.phase is Phase.WAITING and not state.is_at_gate:
        return None
    return waiting(state, WaitingFor.PAUSE, f"paused {_by(observation)}")


def _approved(state: RolloutState, observation: Observation) -> Transition | None:
    """Open the gate before the next step; who may, the database knows, which signs the command."""
    command, seen = observation.command, observation.policy
    if command is None or command.kind is not CommandKind.APPROVE or seen is None:
        return None
    if not closed_gate(state):
        return Transition(state, (), "no gate before the next step waits for an approval")
    step = state.next_step
    if step is not None and command.to_percent not in (None, step.weight_percent):
        # Another person approved that step, it was taken, and this one is not what the operator looked at.
        return Transition(state, (), f"not approved: version {state.challenger} {next_words(state)} next")
    event = f"version {state.challenger} {next_words(state)}: approved {_by(observation)}"
    approved = replace(state, approved_step=len(state.step_starts))
    if not state.is_at_gate:
        # Of two persons who approve the same step the second one has not looked at the next one.
        if not command.is_ahead:
            return Transition(state, (), "not at a gate; an approval beforehand says so: --ahead")
        return Transition(approved, (), f"{event}, ahead of its proof")
    return goes_on(approved, seen, observation, event)


def _resumed(state: RolloutState, observation: Observation) -> Transition | None:
    command, seen = observation.command, observation.policy
    if command is None or command.kind is not CommandKind.RESUME or state.phase is not Phase.WAITING or seen is None:
        return None
    if not are_roles_ours(state, seen):
        why = f"cannot go on: {conflict_words(state.policy, seen)}; put the roles back, or abort"
        return Transition(state, (), why)
    if state.is_at_gate:
        again = asks_again(state, seen, observation.now, _by(observation))
        return again or Transition(state, (), f"{closed_gate(state)}; to resume is no approval")
    phase = Phase.PROGRESSING if state.promoted_at is None else Phase.PROMOTING
    event = f"goes on {_by(observation)}" + (
        "; different scores are expected" if command.expects_different_scores else ""
    )
    gone_on = replace(state, phase=phase, waiting_for=None, reason="", limit_from=observation.now, policy=seen)
    if state.waiting_for is WaitingFor.SPLIT:
        gone_on = replace(gone_on, split_from=observation.now)
    wanted = 0 if state.promoted_at is not None else state.weight_percent
    if seen.weight_percent == wanted:
        return Transition(gone_on, resolved(state), event)
    put_back = SetWeight(wanted, seen.generation)
    starts = (*state.step_starts[:-1], observation.now)[: len(state.step_starts)]
    gone_on = replace(gone_on, step_starts=starts, policy=put_back.result(seen))
    return Transition(gone_on, (put_back, *resolved(state)), f"{event}; the step at {wanted} % begins again")


def _promoted_by_hand(state: RolloutState, observation: Observation) -> Transition | None:
    command, seen = observation.command, observation.policy
    if command is None or command.kind is not CommandKind.PROMOTE or seen is None or not state.is_in_place(seen):
        return None
    if not state.step_starts or state.next_step is None:
        return None
    gate = closed_gate(state)
    if gate:
        return Transition(state, (), f"{gate}; to promote is no approval")
    return entered(state, seen, observation.now, f"promoted {_by(observation)}")


def _stays_waiting(state: RolloutState, _: Observation) -> Transition | None:
    return Transition(state, (), state.reason) if state.phase is Phase.WAITING else None


# -- the way to the champion's place -----------------------------------------------------------------------------------


def _warming_up(state: RolloutState, observation: Observation) -> Transition | None:
    result, seen = observation.warm_up, observation.policy
    if state.step_starts or seen is None:
        return None
    if result is not None and observation.unvalidated:
        result = WarmUpResult(passed=False, detail=_unvalidated(state, observation))
    frozen = freeze_words(state.plan.freezes, observation.now)
    if frozen:
        return Transition(state, (), f"waits with its first step: {frozen}")
    if result is not None and result.passed and result.scores_differ:
        reason = f"version {state.challenger} had no call yet: {result.scores}"
        return waiting(state, WaitingFor.WARM_UP, reason)
    if result is not None and result.passed:
        way = f" {through_words(len(result.proxies))}" if result.proxies else ""
        why = "; ".join(filter(None, [f"the warm-up passed{way}", result.scores]))
        return to_gate(state, seen, observation.now, why)
    said = f": {result.detail}" if result is not None and result.detail else ""
    # Without a result one more is asked for first, so that the reason says what failed.
    limit_seconds = WARM_UP_SECONDS if result is not None else WARM_UP_SECONDS + UNKNOWN_SECONDS
    if _elapsed_seconds(state, observation) >= limit_seconds:
        reason = f"version {state.challenger} fails its warm-up for {duration_words(WARM_UP_SECONDS)}{said}"
        return waiting(state, WaitingFor.WARM_UP, reason)
    return Transition(state, (WarmUp(state.challenger),), f"warms version {state.challenger} up{said}")


def _kept_warm(state: RolloutState, observation: Observation) -> Transition | None:
    """The challenger is champion; the old one is retired when its time is over and no proxy calls it any more."""
    if state.warm_until is None:
        return None
    left_seconds = state.warm_until - observation.now
    if left_seconds > 0:
        return Transition(state, (), f"keeps version {state.champion} warm for {duration_words(left_seconds)} more")
    if not is_confirmed(observation.proxies, observation.proxies_on_generation):
        return Transition(state, (), f"keeps version {state.champion} warm: {_proxies(observation)}")
    event = f"version {state.challenger} is champion; version {state.champion} is retired"
    succeeded = replace(state, phase=Phase.SUCCEEDED, reason=event)
    return Transition(succeeded, (RetireOld(state.champion), moved(state, event)), event)


def _split_refused(state: RolloutState, observation: Observation) -> Transition | None:
    decision = observation.decision
    if decision is None or decision.verdict is not Verdict.INVALID:
        return None
    return waiting(state, WaitingFor.SPLIT, f"stops at {state.weight_percent} %: {decision.reason}")


def _scores_refused(state: RolloutState, observation: Observation) -> Transition | None:
    if not observation.refused_scores:
        return None
    reason = f"version {state.challenger} stops at {state.weight_percent} %: {observation.refused_scores}"
    return waiting(state, WaitingFor.WARM_UP, reason)


def _fails_in_part(state: RolloutState, observation: Observation) -> Transition | None:
    """A challenger that does worse for a few entities or slices alone, or fails calls that the champion fails as well.

    An operator weighs them against the others.
    """
    decision = observation.decision
    if decision is None or not (decision.entities or decision.slices or decision.has_shared_errors):
        return None
    return waiting(state, WaitingFor.TIME, f"stops at {state.weight_percent} %: {decision.reason}")


def _advanced(state: RolloutState, observation: Observation) -> Transition | None:
    seen = observation.policy
    if seen is None or _missing(state, observation):
        return None
    why = observation.decision.reason if observation.decision is not None else "its time is over"
    return to_gate(state, seen, observation.now, why)


def _out_of_time(state: RolloutState, observation: Observation) -> Transition | None:
    limit_seconds = state.plan.maximum_seconds
    if _elapsed_seconds(state, observation) < limit_seconds or freeze_words(state.plan.freezes, observation.now):
        return None
    missing = "; ".join(_missing(state, observation))
    reason = f"undecided at {state.weight_percent} % after {duration_words(limit_seconds)}: {missing}"
    return waiting(state, WaitingFor.TIME, reason)


def _held(state: RolloutState, observation: Observation) -> Transition | None:
    return Transition(state, (), f"holds at {state.weight_percent} %: {'; '.join(_missing(state, observation))}")


def _elapsed_seconds(state: RolloutState, observation: Observation) -> float:
    """Return how much of the step's longest time is over: none of a freeze window counts."""
    return unfrozen_seconds(state.plan.freezes, state.limit_from, observation.now)


def _unvalidated(state: RolloutState, observation: Observation) -> str:
    return f"version {state.challenger} is not validated ({observation.unvalidated})"


def _missing(state: RolloutState, observation: Observation) -> list[str]:
    """Return, in words, everything that the next step still needs."""
    step = state.plan.steps[state.step]
    frozen = freeze_words(state.plan.freezes, observation.now)
    missing = [frozen] if frozen else []
    elapsed_seconds = max(observation.now - state.step_started_at, 0.0)
    if elapsed_seconds < step.dwell_seconds:
        missing.append(f"{duration_words(elapsed_seconds)} of {duration_words(step.dwell_seconds)}")
    is_judged = state.plan.strategy is Strategy.CANARY
    if is_judged and observation.requests == 0:
        missing.append("no traffic")
    elif observation.requests < step.min_requests:
        missing.append(f"{observation.requests:,} of {step.min_requests:,} requests")
    if observation.unvalidated:
        missing.append(_unvalidated(state, observation))
    if not is_confirmed(observation.proxies, observation.proxies_on_generation):
        missing.append(_proxies(observation))
    decision = observation.decision
    if is_judged and (decision is None or decision.verdict is not Verdict.ADVANCE):
        missing.append(decision.reason if decision is not None else "no verdict yet")
    return missing


def _proxies(observation: Observation) -> str:
    if observation.proxies_hidden:
        return HIDDEN_WORDS
    return live_proxies_words(observation.proxies, observation.proxies_on_generation)


def _by(observation: Observation) -> str:
    command = observation.command
    if command is None:
        return ""
    return f"by {command.actor}" + (f": {command.reason}" if command.reason else "")


_RULES: tuple[Callable[[RolloutState, Observation], Transition | None], ...] = (
    _finished,
    _aborted,
    _undone_by_hand,
    _rolled_back_on_evidence,
    _repeated,
    _conflicting,
    _paused,
    _approved,
    _resumed,
    _promoted_by_hand,
    is_open,
    answered,
    asks_on,
    _stays_waiting,
    _warming_up,
    _kept_warm,
    _split_refused,
    _scores_refused,
    _fails_in_part,
    _advanced,
    _out_of_time,
    _held,
)
_GUARD_RULES: tuple[Callable[[RolloutState, Observation], Transition | None], ...] = (
    _finished,
    _aborted,
    guard.is_over,
    guard.begins,
    guard.alerts,
    _guard_rolls_back,
    guard.follows_operator,
    guard.refuses,
    _guard_keeps_warm,
    guard.renews,
    _resumed,
    _stays_waiting,
    _split_refused,
    _fails_in_part,
    guard.watches,
)
