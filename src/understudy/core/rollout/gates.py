"""Gates of a plan: places at which a rollout waits for a person or a service, however good its evidence is.

As operators write them::

    {"gates": {"before_start": {"approval": "anyone"}, "before_step": {"http": "quality"},
               "before_promotion": {"http": "quality", "approval": "another"}}}

A gate adds to what a step needs, and takes nothing from it: a step that may be taken still needs its time and its
proof. Whatever is found worse while a rollout waits at a gate is rolled back at once. A service that refuses, or does
not answer, opens no gate; a person may open it in the service's place.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from understudy.core.alerts.alerts import MAX_ASKED_WAIT_SECONDS, Delivery, Outcome
from understudy.core.durations import duration_words
from understudy.core.rollout.actions import AskGate
from understudy.core.rollout.plan import WHOLE_PERCENT, Approver, Gate, GatePlace
from understudy.core.rollout.state import GateAnswer, GateRecord, RolloutState

ANSWER_SECONDS = 300.0
"""How long a gate over HTTP may leave its question open before an operator is alerted; it is asked on after that."""
MAX_ASK_WAIT_SECONDS = 60.0
MAX_DETAIL = 300
"""Characters of a service's words: they stand in alerts, events and on pages."""
_FIRST_WAIT_SECONDS = 1.0
_REFUSES, _NOT_YET = 403, 202
_KEY_CHARACTERS = 32

_WHO = {
    Approver.ANYONE: "a person",
    Approver.ANOTHER: "another person than the one who started it",
}
_WHEN = {
    GatePlace.BEFORE_START: "its first share",
    GatePlace.BEFORE_STEP: "each later step",
    GatePlace.BEFORE_PROMOTION: "the promotion",
}


def gate_words(place: GatePlace, gate: Gate) -> str:
    """Return what a gate of a plan asks for."""
    return f"It waits before {_WHEN[place]} until {_opener_words(gate)}"


def gates_before(plan_gates: Mapping[GatePlace, Gate], index: int, weight_percent: int) -> dict[GatePlace, Gate]:
    """Return the gates of a step: the first one is the start, that of 100 % the promotion, and it may be both."""
    if index == 0:
        places = [GatePlace.BEFORE_START]
    else:
        places = [GatePlace.BEFORE_STEP] if weight_percent < WHOLE_PERCENT else []
    if weight_percent == WHOLE_PERCENT:
        places.append(GatePlace.BEFORE_PROMOTION)
    return {place: plan_gates[place] for place in places if place in plan_gates}


def closed_gates(state: RolloutState) -> dict[GatePlace, Gate]:
    """Return the gates that keep the next step from being taken."""
    step, index = state.next_step, len(state.step_starts)
    if step is None or state.approved_step == index:
        return {}
    passed = () if state.gate is None else state.gate.passed
    gates = gates_before(state.plan.gates, index, step.weight_percent)
    return {place: gate for place, gate in gates.items() if place not in passed}


def closed_gate(state: RolloutState) -> str:
    """Return in words what the next step waits for, and whom; empty where no gate is, or it is open."""
    gates = tuple(closed_gates(state).values())
    if not gates:
        return ""
    if all(gate.http is None for gate in gates):
        who = {gate.approver for gate in gates}
        openers = [f"{_WHO[Approver.ANOTHER if Approver.ANOTHER in who else Approver.ANYONE]} approves it"]
    else:
        is_refused = state.gate is not None and state.gate.is_refused
        openers = list(dict.fromkeys(_opener_words(gate, is_refused=is_refused) for gate in gates))
    return f"version {state.challenger} {next_words(state)} once {', and '.join(openers)}"


def questions(state: RolloutState) -> tuple[AskGate, ...]:
    """Return the services that are to be asked about the next step: none while an operator has to decide."""
    if state.gate is None or state.gate.is_refused:
        return ()
    return tuple(AskGate(place, gate.http) for place, gate in closed_gates(state).items() if gate.http is not None)


def needs_person(state: RolloutState) -> bool:
    """Return whether a closed gate can be opened by a person alone: it names no service, or that refused."""
    is_refused = state.gate is not None and state.gate.is_refused
    return is_refused or any(gate.http is None for gate in closed_gates(state).values())


def unanswered_words(names: list[str], seconds: float, detail: str) -> str:
    """Return which services leave their question open, for how long, and what came of the last attempt."""
    said = f": {detail}" if detail else ""
    return f"no answer of {' and '.join(names)} for {duration_words(seconds)}{said}"


def question_key(state: RolloutState, place: GatePlace, environment: str) -> str:
    """Return the idempotency key of a question: the same at each attempt, by whichever monitor, and of no other.

    Monitors of two releases ask with the same key: how it is computed does not change.
    """
    asks = 1 if state.gate is None else state.gate.asks
    at = (len(state.step_starts), place.value, asks)
    parts = (environment, state.rollout_id, state.model_name, state.started_at, *at)
    return f"gate_{sha256(repr(parts).encode()).hexdigest()[:_KEY_CHARACTERS]}"


def question_to_json(state: RolloutState, place: GatePlace, environment: str) -> dict[str, Any]:
    """Return what a service is told: the same at each attempt, as its key is."""
    gate = state.gate or GateRecord(state.started_at)
    step = state.next_step
    return {
        "id": question_key(state, place, environment),
        "type": "understudy.gate",
        "gate": state.plan.gates[place].http,
        "place": place.value,
        "environment": environment,
        "model": state.model_name,
        "rollout": state.rollout_id,
        "champion": state.champion,
        "challenger": state.challenger,
        "weight_percent": state.weight_percent,
        "next_weight_percent": None if step is None else step.weight_percent,
        "asked_at": gate.since,
    }


def answer_of(delivery: Delivery) -> GateAnswer:
    """Return what an answer means: 2xx passes, but not 202, which is no decision yet; 403 refuses; all else is none.

    A redirect, a wrong address, an error and a deadline that is over are no answer, and no answer opens no gate.
    """
    if delivery.status == _REFUSES:
        return GateAnswer(passes=False, detail=_plain(delivery.detail))
    if delivery.outcome is Outcome.DELIVERED and delivery.status != _NOT_YET:
        return GateAnswer(passes=True)
    said = "it has not decided" if delivery.status == _NOT_YET else f"{delivery.status or ''} {delivery.detail}".strip()
    return GateAnswer(passes=None, detail=_plain(said))


def next_ask_seconds(attempts: int, delivery: Delivery) -> float:
    """Return how long until a service is asked again: its Retry-After, or a second that doubles to a minute."""
    if delivery.retry_after_seconds is not None:
        return min(max(delivery.retry_after_seconds, _FIRST_WAIT_SECONDS), MAX_ASKED_WAIT_SECONDS)
    return min(_FIRST_WAIT_SECONDS * 2.0 ** min(attempts - 1, 32), MAX_ASK_WAIT_SECONDS)


def next_words(state: RolloutState) -> str:
    """Return what the next step does."""
    step = state.next_step
    if step is None or step.weight_percent == WHOLE_PERCENT:
        return f"becomes champion in the place of {state.champion}"
    return f"goes from {state.weight_percent} to {step.weight_percent} %"


def _plain(text: str) -> str:
    """Return a service's words in one line, without characters that a terminal or JSONB does not take."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(shown.split())[:MAX_DETAIL]


def _opener_words(gate: Gate, *, is_refused: bool = False) -> str:
    person = f"{_WHO[gate.approver]} approves it"
    if gate.http is None:
        return person
    if is_refused:
        return f"{person} in the place of {gate.http}, which refused"
    return f"{gate.http} lets it pass, or {person} in its place"
