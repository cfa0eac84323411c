"""Gates of a plan: places at which a rollout waits for a person's approval, however good its evidence is.

As operators write them::

    {"gates": {"before_start": {"approval": "anyone"}, "before_promotion": {"approval": "another"}}}

A gate adds to what a step needs, and takes nothing from it: an approved step still needs its time and its proof.
Whatever is found worse while a rollout waits at a gate is rolled back at once.
"""

from collections.abc import Mapping

from understudy.core.rollout.plan import WHOLE_PERCENT, Approver, GatePlace
from understudy.core.rollout.state import RolloutState

_WHO = {
    Approver.ANYONE: "a person",
    Approver.ANOTHER: "another person than the one who started it",
}


_WHEN = {
    GatePlace.BEFORE_START: "its first share",
    GatePlace.BEFORE_STEP: "each later step",
    GatePlace.BEFORE_PROMOTION: "the promotion",
}


def gate_words(place: GatePlace, who: Approver) -> str:
    """Return what a gate of a plan asks for."""
    return f"It waits before {_WHEN[place]} until {_WHO[who]} approves it"


def gates_before(plan_gates: Mapping[GatePlace, Approver], index: int, weight_percent: int) -> list[Approver]:
    """Return who has to approve a step: the first one is the start, that of 100 % the promotion, and it may be both."""
    if index == 0:
        places = [GatePlace.BEFORE_START]
    else:
        places = [GatePlace.BEFORE_STEP] if weight_percent < WHOLE_PERCENT else []
    if weight_percent == WHOLE_PERCENT:
        places.append(GatePlace.BEFORE_PROMOTION)
    return [plan_gates[place] for place in places if place in plan_gates]


def closed_gate(state: RolloutState) -> str:
    """Return in words what the next step waits for a person to approve; empty where no gate is, or it is open."""
    step, index = state.next_step, len(state.step_starts)
    if step is None or state.approved_step == index:
        return ""
    who = gates_before(state.plan.gates, index, step.weight_percent)
    if not who:
        return ""
    asked = Approver.ANOTHER if Approver.ANOTHER in who else Approver.ANYONE
    return f"version {state.challenger} {next_words(state)} once {_WHO[asked]} approves it"


def next_words(state: RolloutState) -> str:
    """Return what the next step does."""
    step = state.next_step
    if step is None or step.weight_percent == WHOLE_PERCENT:
        return f"becomes champion in the place of {state.champion}"
    return f"goes from {state.weight_percent} to {step.weight_percent} %"
