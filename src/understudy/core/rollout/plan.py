"""How a rollout is to go: how risky the change is, and the steps of the traffic that follow from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import ceil
from typing import Any, NamedTuple

from understudy.core.rollout.freeze import FreezeWindow

MAXIMUM_SECONDS = 86_400.0
"""Longest time of a step before an operator is asked, unless the plan says otherwise or its dwell times are longer."""
KEEP_WARM_SECONDS = 1_800.0
"""How long a replaced champion can be put back at once. Source: issue 3, item 4."""
FAST_FACTOR = 90.0
"""Half an hour becomes 20 seconds."""

WHOLE_PERCENT = 100
_EXPECTED = "expect_different_scores"
_GATES = "gates"


class Risk(StrEnum):
    """How much of a version is new. Source: seed 003, ``UpdateRisk``."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Strategy(StrEnum):
    """How the traffic moves."""

    ROLLING = "rolling"
    """Step by step; the analysis can only stop it, a step need not be proved."""
    CANARY = "canary"
    """Step by step; each step needs its dwell time, its requests and the analysis' word."""
    BLUE_GREEN = "blue_green"
    """At once, after the warm-up."""


class GatePlace(StrEnum):
    """Before what a rollout waits for an approval."""

    BEFORE_START = "before_start"
    """Its first share."""
    BEFORE_STEP = "before_step"
    """Each later step below 100 %."""
    BEFORE_PROMOTION = "before_promotion"
    """The step that makes the challenger the champion."""


class Approver(StrEnum):
    """Which person may approve."""

    ANYONE = "anyone"
    """Every person who may command rollouts."""
    ANOTHER = "another"
    """Not the one who started the rollout."""


class Gate(NamedTuple):
    """What has to open one place of a plan: a person, or a service over HTTP in whose place a person may."""

    approval: Approver | None = None
    """Which person may; of a gate without a service ``None`` is not read."""
    http: str | None = None
    """The service's name in the monitors' setting ``UNDERSTUDY_GATES``; ``None``: only a person opens it."""

    @property
    def approver(self) -> Approver:
        """Return which person may open it."""
        return self.approval or Approver.ANYONE


class Grade(NamedTuple):
    """How risky a change is, and why."""

    risk: Risk
    reason: str
    """One sentence without a full stop: what is the same or not, or what is not recorded and how to record it."""


class VersionFacts(NamedTuple):
    """What the grade of a change rests on; ``None`` and ``""`` are unknown, and unknown is never "the same"."""

    version: str
    artifact_digest: str | None = None
    base_model: str | None = None
    family: str | None = None
    """By default the base model's name up to its first hyphen. Source: seed 003, ``_assess_risk``."""
    framework: str | None = None


class Step(NamedTuple):
    """A share of the traffic, and what must have been seen before the next one."""

    weight_percent: int
    """1-100; 100 is always the last one and makes the challenger the champion."""
    dwell_seconds: float
    min_requests: int
    """Calls of the challenger in this step."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The whole way to the champion's place; ``plan_reader.read_plan`` makes none that breaks a rule."""

    steps: tuple[Step, ...]
    strategy: Strategy = Strategy.CANARY
    maximum_seconds: float = MAXIMUM_SECONDS
    """Longest time of one step; then it waits for an operator."""
    keep_warm_seconds: float = KEEP_WARM_SECONDS
    canary_policy: str = "default"
    canary_limits: Mapping[str, Any] = field(default_factory=dict)
    """As the analysis named by ``canary_policy`` reads them; not looked at here."""
    salt: str | None = None
    """What is hashed in the place of the model's name; ``None``: the model's name."""
    freezes: tuple[FreezeWindow, ...] = ()
    """Times of the calendar in which it takes no step forward."""
    expect_different_scores: bool = False
    """Whether scores that differ from the champion's at the warm-up let it go on."""
    gates: Mapping[GatePlace, Gate] = field(default_factory=dict)
    """Where it waits for a person or a service to let it take the next step."""


LADDER = (
    Step(2, 1_800, 200),
    Step(5, 1_800, 500),
    Step(10, 3_600, 2_000),
    Step(25, 3_600, 5_000),
    Step(50, 7_200, 10_000),
    Step(100, 0, 0),
)
"""Source: seed 003, the table of its progressive rollout."""
_ROLLING = (Step(25, 60, 0), Step(50, 60, 0), Step(100, 0, 0))
_FIRST_STEPS = {Risk.MEDIUM: (10, 3_600.0), Risk.HIGH: (5, 14_400.0), Risk.CRITICAL: (2, 86_400.0)}
"""Weight and dwell time. Source: seed 003, ``plan_update``."""


def grade_risk(current: VersionFacts, target: VersionFacts) -> Grade:
    """Return how risky it is to replace ``current`` by ``target``.

    The same artifact is ``LOW``, the same base model ``MEDIUM`` (``HIGH`` in another framework: its speed and its
    rounding are another runtime's), the same family ``HIGH``, another family ``CRITICAL``. Where a version has neither
    base model nor family recorded, the change is ``HIGH``: unknown is not the same, and says nothing of a new family.

    Source:
        Seed 003, ``_assess_risk``; the framework and what is not recorded are ours.
    """
    if _is_same(current.artifact_digest, target.artifact_digest):
        return Grade(Risk.LOW, "both versions have the same artifact_digest")
    unknown = [facts.version for facts in (current, target) if not (facts.base_model or facts.family)]
    if unknown:
        return Grade(Risk.HIGH, _unknown_reason(unknown))
    if _is_same(current.base_model, target.base_model):
        return _grade_of_same_base(current, target)
    if _is_same(_family(current), _family(target)):
        return Grade(
            Risk.HIGH, f"the base model is another of the family {_family(current)}: {_bases(current, target)}"
        )
    return Grade(Risk.CRITICAL, f"the base model is of another family: {_bases(current, target)}")


def _grade_of_same_base(current: VersionFacts, target: VersionFacts) -> Grade:
    if current.framework == target.framework:
        return Grade(Risk.MEDIUM, f"both versions have the base model {current.base_model}")
    return Grade(
        Risk.HIGH,
        f"the base model {current.base_model} is the same, the framework is not: "
        f"{current.framework or 'unknown'} → {target.framework or 'unknown'}",
    )


def _unknown_reason(versions: Sequence[str]) -> str:
    named = f"version {versions[0]} has" if len(versions) == 1 else f"versions {' and '.join(versions)} have"
    return (
        f"{named} no base model recorded, so how much is new is unknown; understudy version register --base-model NAME "
        "records it"
    )


def _bases(current: VersionFacts, target: VersionFacts) -> str:
    return " → ".join(facts.base_model or facts.family or "unknown" for facts in (current, target))


def _is_same(one: str | None, other: str | None) -> bool:
    return bool(one) and one == other


def _family(facts: VersionFacts) -> str:
    return facts.family or (facts.base_model or "").split("-")[0]


def plan_for(risk: Risk) -> RolloutPlan:
    """Return the plan that a risk asks for: rolling, or the ladder from 10, 5 or 2 % on."""
    if risk is Risk.LOW:
        return NAMED_PLANS["rolling"]
    weight_percent, dwell_seconds = _FIRST_STEPS[risk]
    first, *others = (step for step in LADDER if step.weight_percent >= weight_percent)
    steps = (first._replace(dwell_seconds=dwell_seconds), *others)
    return RolloutPlan(steps, maximum_seconds=usual_maximum_seconds(steps))


def compressed(plan: RolloutPlan, factor: float) -> RolloutPlan:
    """Return the plan with every time and every number of requests divided by ``factor``, for demos and tests."""
    return replace(
        plan,
        steps=tuple(
            Step(step.weight_percent, step.dwell_seconds / factor, ceil(step.min_requests / factor))
            for step in plan.steps
        ),
        maximum_seconds=plan.maximum_seconds / factor,
        keep_warm_seconds=plan.keep_warm_seconds / factor,
    )


USUAL_STEPS = {Strategy.ROLLING: _ROLLING, Strategy.CANARY: LADDER, Strategy.BLUE_GREEN: LADDER[-1:]}
NAMED_PLANS: Mapping[str, RolloutPlan] = {
    "default": RolloutPlan(LADDER),
    "fast": compressed(RolloutPlan(LADDER), FAST_FACTOR),
    "rolling": RolloutPlan(USUAL_STEPS[Strategy.ROLLING], Strategy.ROLLING),
    "blue_green": RolloutPlan(USUAL_STEPS[Strategy.BLUE_GREEN], Strategy.BLUE_GREEN),
}


def plan_to_json(plan: RolloutPlan) -> dict[str, Any]:
    """Return the plan as :func:`~understudy.core.rollout.plan_reader.read_plan` reads it."""
    document = {attribute.name: getattr(plan, attribute.name) for attribute in fields(plan)}
    document |= {"steps": [step._asdict() for step in plan.steps], "canary_limits": dict(plan.canary_limits)}
    later: dict[str, Any] = {"freezes": [window.text for window in plan.freezes]} if plan.freezes else {}
    later |= {_EXPECTED: True} if plan.expect_different_scores else {}
    later |= {_GATES: {place.value: _gate_to_json(gate) for place, gate in plan.gates.items()}} if plan.gates else {}
    # A release before these fields refuses a plan that names them, so it is shown none that says nothing.
    return {name: value for name, value in document.items() if name not in ("freezes", _EXPECTED, _GATES)} | later


def _gate_to_json(gate: Gate) -> dict[str, str]:
    return {name: str(value) for name, value in gate._asdict().items() if value is not None}


def usual_step(weight_percent: int, strategy: Strategy) -> Step:
    """Return what a step of this weight needs unless the plan says it: as the first usual step that is as large."""
    steps = USUAL_STEPS[strategy]
    return next((step for step in steps if step.weight_percent >= weight_percent), steps[-1])


def usual_maximum_seconds(steps: Sequence[Step]) -> float:
    """Return the longest time of a step before an operator is asked: a day, or twice the longest dwell time."""
    return max((MAXIMUM_SECONDS, *(2 * step.dwell_seconds for step in steps)))
