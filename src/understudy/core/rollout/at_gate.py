"""What a rollout does at a gate: come to it, ask its services, take their answers, and have a person decide."""

from collections.abc import Mapping
from dataclasses import replace

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.gates import (
    ANSWER_SECONDS,
    closed_gate,
    closed_gates,
    needs_person,
    next_words,
    questions,
    unanswered_words,
)
from understudy.core.rollout.plan import GatePlace
from understudy.core.rollout.state import GateRecord, Observation, Phase, RolloutState, Transition, WaitingFor
from understudy.core.rollout.transitions import entered, resolved, waiting


def to_gate(state: RolloutState, seen: PolicySeen, now: float, why: str) -> Transition:
    """Enter the next step, or wait at the gate before it for whom it asks."""
    words = closed_gate(state)
    if not words:
        return entered(state, seen, now, why)
    come = replace(state, gate=state.gate or GateRecord(now))
    return waiting(come, WaitingFor.APPROVAL if needs_person(come) else WaitingFor.GATE, f"{words}: {why}")


def is_open(state: RolloutState, observation: Observation) -> Transition | None:
    """Go on where the gate was opened beside the state machine: a person approves by SQL as well."""
    seen = observation.policy
    if seen is None or not state.is_at_gate or closed_gates(state):
        return None
    return goes_on(state, seen, observation, f"the gate is open: version {state.challenger} {next_words(state)}")


def answered(state: RolloutState, observation: Observation) -> Transition | None:
    """Take what services have answered: a refusal is an operator's to decide, and nothing but a pass opens a gate."""
    asked = {question.place: question.name for question in questions(state)}
    answers = {place: answer for place, answer in observation.gate_answers.items() if place in asked}
    if state.gate is None or observation.policy is None:
        return None
    refusal = next((place for place, answer in answers.items() if answer.passes is False), None)
    if refusal is not None:
        return _refused(state, state.gate, asked[refusal], answers[refusal].detail)
    passed = {place: asked[place] for place, answer in answers.items() if answer.passes}
    return _passed(state, state.gate, passed, observation, observation.policy) if passed else None


def _refused(state: RolloutState, gate: GateRecord, name: str, detail: str) -> Transition:
    refused = replace(state, gate=gate._replace(is_refused=True))
    said = f": {detail}" if detail else ""
    event = f"{name} refuses that version {state.challenger} {next_words(state)}{said}"
    if not state.is_at_gate:
        return Transition(refused, (), event)
    return waiting(refused, WaitingFor.APPROVAL, f"{closed_gate(refused)}{said}")._replace(event=event)


def _passed(
    state: RolloutState, gate: GateRecord, passed: Mapping[GatePlace, str], observation: Observation, seen: PolicySeen
) -> Transition:
    names = " and ".join(dict.fromkeys(passed.values()))
    event = f"version {state.challenger} {next_words(state)}: {names} lets it pass"
    opened = replace(state, gate=gate._replace(passed=(*gate.passed, *passed)))
    if not state.is_at_gate:
        return Transition(opened, (), event)
    words = closed_gate(opened)
    if not words:
        return goes_on(opened, seen, observation, event)
    return waiting(opened, _waits_for(opened), f"{event}; {words}")


def asks_on(state: RolloutState, observation: Observation) -> Transition | None:
    """Ask the services again while the rollout waits at a gate; an operator is alerted once that has taken too long."""
    asks = questions(state)
    if not asks or state.gate is None or not state.is_at_gate or observation.policy is None:
        return None
    waited_seconds = observation.now - max(state.gate.since, state.limit_from)
    if state.waiting_for is WaitingFor.GATE and waited_seconds >= ANSWER_SECONDS:
        details = (observation.gate_answers[ask.place].detail for ask in asks if ask.place in observation.gate_answers)
        said = unanswered_words([ask.name for ask in asks], ANSWER_SECONDS, next(filter(None, details), ""))
        late = waiting(state, WaitingFor.APPROVAL, f"{closed_gate(state)}: {said}")
        return late._replace(actions=(*late.actions, *asks))
    return Transition(state, asks, state.reason)


def asks_again(state: RolloutState, seen: PolicySeen, now: float, by: str) -> Transition | None:
    """Ask anew about a step that a service has refused, when an operator resumes the rollout."""
    if state.gate is None or not state.gate.is_refused:
        return None
    gate = state.gate._replace(since=now, is_refused=False, asks=state.gate.asks + 1)
    again = replace(state, phase=Phase.PROGRESSING, waiting_for=None, reason="", limit_from=now, policy=seen, gate=gate)
    return Transition(again, resolved(state), f"asks the gate again, resumed {by}")


def goes_on(state: RolloutState, seen: PolicySeen, observation: Observation, event: str) -> Transition:
    """Go on to a step whose gate has opened: the next tick takes it, on the proof of that moment."""
    gone_on = replace(
        state, phase=Phase.PROGRESSING, waiting_for=None, reason="", limit_from=observation.now, policy=seen
    )
    return Transition(gone_on, resolved(state), event)


def _waits_for(state: RolloutState) -> WaitingFor:
    if needs_person(state) or state.waiting_for is WaitingFor.APPROVAL:
        return WaitingFor.APPROVAL
    return WaitingFor.GATE
