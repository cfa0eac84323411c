"""What a rollout remembers, and what a tick of it sees: the values of ``core.rollout``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple

from understudy.core.alerts.alerts import AlertKind
from understudy.core.canary.decision import Decision
from understudy.core.rollout.actions import Action, PolicySeen
from understudy.core.rollout.guard_limits import NO_LIMITS, GuardLimits, limits_in, with_limits
from understudy.core.rollout.plan import GatePlace, RolloutPlan, Step

_GUARD_METRICS, _GUARD_JUDGE = "guard_metrics", "guard_judge"


class Kind(StrEnum):
    """What a row of ``Rollout`` is for."""

    ROLLOUT = "rollout"
    """Takes a challenger to the champion's place."""
    GUARD = "guard"
    """Moves nothing: watches a split that an operator set, and takes it back if the policy says so."""


class DriftMode(StrEnum):
    """What a challenger that drifts from the champion leads to, as ``ServingPolicy.on_drift`` names it."""

    ALERT = "alert"
    ROLLBACK = "rollback"


class GuardMode(StrEnum):
    """What the guard of a split does when its challenger does worse, as ``ServingPolicy.guard`` names it."""

    ROLLBACK = "rollback"
    ALERT = "alert"
    OFF = "off"
    """The database opens no guard."""


class Phase(StrEnum):
    """Where a rollout is, as the table ``Rollout`` names it."""

    PROGRESSING = "PROGRESSING"
    """Warming up, or at a step below 100 %."""
    WAITING = "WAITING"
    """For an operator; :class:`WaitingFor` says why. The challenger keeps its share, and can still be rolled back."""
    PROMOTING = "PROMOTING"
    """The challenger is champion; the old champion is kept warm."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        """Whether nothing comes after it."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class WaitingFor(StrEnum):
    """Why a rollout waits for an operator."""

    PAUSE = "pause"
    """An operator paused it."""
    CONFLICT = "conflict"
    """The policy was changed outside the rollout."""
    TIME = "time"
    """A step took longer than the plan allows, or has found what no longer time decides: entities or slices that
    fail."""
    SPLIT = "split"
    """The traffic is not split as the policy says, so that nothing can be compared."""
    WARM_UP = "warm_up"
    """The challenger does not answer the warm-up, or not with scores as expected."""
    APPROVAL = "approval"
    """The plan asks for a person's approval of the next step, or its gate over HTTP refuses, or does not answer."""
    GATE = "gate"
    """The plan's gate over HTTP has been asked about the next step, and has time to answer: no operator is needed."""


WAITING_ALERTS = {
    WaitingFor.CONFLICT: AlertKind.ROLLOUT_NEEDS_HUMAN,
    WaitingFor.TIME: AlertKind.ROLLOUT_STALLED,
    WaitingFor.SPLIT: AlertKind.SAMPLE_RATIO_MISMATCH,
    WaitingFor.WARM_UP: AlertKind.ROLLOUT_NEEDS_HUMAN,
    WaitingFor.APPROVAL: AlertKind.ROLLOUT_NEEDS_HUMAN,
}
"""None for a pause: the operator who gave it knows of it; nor for a gate that has time to answer."""


class CommandKind(StrEnum):
    """What an operator can tell a rollout."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    """Go one step on without waiting for its time and its proof; at the last step that makes it the champion."""
    ABORT = "abort"
    APPROVE = "approve"
    """Open the gate before the next step, which still needs its time and its proof."""


class Command(NamedTuple):
    """What an operator tells a rollout, with the operator and the reason."""

    kind: CommandKind
    actor: str
    reason: str = ""
    expects_different_scores: bool = False
    """Of a resume: scores that differ from the champion's at the warm-up let the rollout go on."""
    is_ahead: bool = False
    """Of an approval: it is meant for a step that the rollout has not come to yet."""
    to_percent: int | None = None
    """Of an approval: the share of the step that it is for; ``None``: whichever is next."""


class WarmUpResult(NamedTuple):
    """What became of the probe calls to the challenger."""

    passed: bool
    detail: str = ""
    scores: str = ""
    """How its scores compare with the champion's, of a version that passed; empty where it has none."""
    scores_differ: bool = False
    """Whether they differ so much that an operator has to decide."""
    proxies: tuple[str, ...] = ()
    """The live proxies that made the calls, of a version whose model servers only they reach."""


class GateAnswer(NamedTuple):
    """What a gate over HTTP said of the next step."""

    passes: bool | None
    """``None``: nothing that counts, so it is asked again; that never opens the gate."""
    detail: str = ""
    """Its words, or why there is no answer."""


class GateRecord(NamedTuple):
    """What is remembered of the gates before the next step, until it is entered."""

    since: float
    """When the rollout came to them."""
    passed: tuple[GatePlace, ...] = ()
    """Those whose service let the step pass."""
    is_refused: bool = False
    """Whether a service refused the step; then none is asked before an operator has decided."""
    asks: int = 1
    """Which time this step is asked about: each time is a question of its own."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tick sees, read at one moment."""

    now: float
    """Seconds since the epoch."""
    policy: PolicySeen | None
    """``None`` when the model has no policy any more."""
    decision: Decision | None = None
    """Of the challenger against the champion since the step began."""
    decision_after_promotion: Decision | None = None
    """Of the new champion; ``ROLL_BACK`` puts the old one back."""
    requests: int = 0
    """Calls of the challenger in this step."""
    proxies: int = 0
    """Live ones. A stale proxy holds no step: a worker that was killed must not stop every rollout."""
    proxies_on_generation: int = 0
    """Those of them that act on the policy's generation."""
    proxies_hidden: bool = False
    """Whether the reports of proxies could not be read."""
    warm_up: WarmUpResult | None = None
    refused_scores: str = ""
    """That the challenger gives every call the same score, or that its mean score has moved, in words; empty where it
    does not, or where that is expected."""
    unvalidated: str = ""
    """Why a challenger that requires a validation has none that holds; the database refuses it a larger share."""
    gate_answers: Mapping[GatePlace, GateAnswer] = field(default_factory=dict)
    """What services answered that were asked about the next step."""
    command: Command | None = None
    guard: GuardMode = GuardMode.ROLLBACK
    """What a guard may do."""
    guard_seconds: float = inf
    """After how long a guard's evidence begins anew."""
    guard_limits: GuardLimits = NO_LIMITS
    """What a guard which begins now is judged by beside the usual checks."""


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Everything a rollout remembers from tick to tick; a value, stored whole."""

    rollout_id: int
    model_name: str
    champion: str
    """Who was champion when it began."""
    challenger: str
    plan: RolloutPlan
    policy: PolicySeen
    """The policy as the last action leaves it; what is seen is compared with it."""
    started_at: float
    limit_from: float
    """From when the longest time of the step counts: its start, or when an operator last resumed it."""
    phase: Phase = Phase.PROGRESSING
    step_starts: tuple[float, ...] = ()
    """When each step was entered, so far; none while warming up."""
    waiting_for: WaitingFor | None = None
    reason: str = ""
    """Why it waits, or how it ended."""
    promoted_at: float | None = None
    split_from: float = 0.0
    """From when on the split of the traffic is judged: when an operator last resumed the rollout despite it."""
    kind: Kind = Kind.ROLLOUT
    approved_step: int | None = None
    """Index of the step that a person has approved, until it is entered."""
    gate: GateRecord | None = None
    """Of the gates before the next step; ``None`` until the rollout comes to them."""

    @property
    def is_at_gate(self) -> bool:
        """Whether it waits at a gate, and so may go on without an operator's resume."""
        return self.phase is Phase.WAITING and self.waiting_for in (WaitingFor.APPROVAL, WaitingFor.GATE)

    @property
    def has_failed_guard(self) -> bool:
        """Whether it is a guard that only alerts, and has: an operator is to take the challenger back."""
        return self.kind is Kind.GUARD and self.phase is Phase.WAITING and self.waiting_for is None

    @property
    def is_ended_guard(self) -> bool:
        """Whether it is a guard that ended with its split: nothing was proven against its version, nor for it."""
        return self.kind is Kind.GUARD and self.phase is Phase.SUCCEEDED and self.reason.startswith("over")

    @property
    def step(self) -> int:
        """Index of the current step in the plan; 0 also before the first weight is set."""
        return max(len(self.step_starts) - 1, 0)

    @property
    def step_started_at(self) -> float:
        """When the current step was entered; the rollout's start before the first weight is set."""
        return self.step_starts[-1] if self.step_starts else self.started_at

    @property
    def weight_percent(self) -> int:
        """The challenger's share by the plan: 0 while warming up, 100 as champion; of a guard, as it was set."""
        if self.kind is Kind.GUARD and self.promoted_at is None:
            return self.policy.weight_percent
        return self.plan.steps[self.step].weight_percent if self.step_starts else 0

    @property
    def next_step(self) -> Step | None:
        """The step after the current one; ``None`` after the last."""
        index = len(self.step_starts)
        return self.plan.steps[index] if index < len(self.plan.steps) else None

    @property
    def warm_until(self) -> float | None:
        """Until when the old champion is kept; ``None`` before it was replaced."""
        return None if self.promoted_at is None else self.promoted_at + self.plan.keep_warm_seconds

    def is_in_place(self, seen: PolicySeen | None) -> bool:
        """Whether the policy is as this state's actions leave it.

        When an action is refused because the policy's generation moved, this tells an action that was applied before
        (by a monitor that died before storing the state) from a change of an operator's.
        """
        return seen == self.policy

    def has_unapplied_action(self, seen: PolicySeen) -> bool:
        """Whether the last action is still to be carried out: each makes the generation one higher than it was."""
        return bool(self.step_starts) and seen.generation == self.policy.generation - 1


class Transition(NamedTuple):
    """What a tick comes to."""

    state: RolloutState
    actions: tuple[Action, ...]
    """To be carried out in this order; none is the most frequent answer."""
    event: str
    """One sentence for ``RolloutEvent``."""


def new_rollout_state(
    rollout_id: int, model_name: str, plan: RolloutPlan, policy: PolicySeen, now: float
) -> RolloutState:
    """Return the state of a new rollout.

    The policy carries its id, with the challenger in its role at weight 0, as the transaction that starts it leaves it.

    Raises:
        ValueError: If the policy is not as described.
    """
    if policy.challenger is None or policy.weight_percent or policy.rollout_id != rollout_id:
        raise ValueError("a rollout begins with its challenger at weight 0 and its id in the policy")
    return RolloutState(
        rollout_id=rollout_id,
        model_name=model_name,
        champion=policy.champion,
        challenger=policy.challenger,
        plan=plan,
        policy=policy,
        started_at=now,
        limit_from=now,
    )


def state_to_json(state: RolloutState) -> dict[str, Any]:
    """Return what ``Rollout.state`` holds: all but the plan and the kind, which have columns of their own.

    The metrics and the judge of a guard are in it, since the database made its plan.
    """
    limits = limits_in(state.plan) if state.kind is Kind.GUARD else NO_LIMITS
    return {
        "rollout_id": state.rollout_id,
        "model_name": state.model_name,
        "champion": state.champion,
        "challenger": state.challenger,
        "policy": state.policy._asdict(),
        "started_at": state.started_at,
        "limit_from": state.limit_from,
        "phase": state.phase,
        "step_starts": list(state.step_starts),
        "waiting_for": state.waiting_for,
        "reason": state.reason,
        "promoted_at": state.promoted_at,
        "split_from": state.split_from,
        # A release before gates cannot read it, so it is shown none where there is none.
        **({} if state.approved_step is None else {"approved_step": state.approved_step}),
        **({} if state.gate is None else {"gate": state.gate._asdict()}),
        **({_GUARD_METRICS: list(limits.metrics)} if limits.metrics else {}),
        **({} if limits.judge is None else {_GUARD_JUDGE: dict(limits.judge)}),
    }


def state_from_json(document: Mapping[str, Any], plan: RolloutPlan, kind: Kind = Kind.ROLLOUT) -> RolloutState:
    """Return the state that :func:`state_to_json` wrote."""
    waiting_for, gate = document["waiting_for"], document.get("gate")
    limits = GuardLimits(document.get(_GUARD_METRICS, ()), document.get(_GUARD_JUDGE))
    return RolloutState(
        **{
            **{name: value for name, value in document.items() if name not in (_GUARD_METRICS, _GUARD_JUDGE)},
            "plan": with_limits(plan, limits),
            "kind": kind,
            "policy": PolicySeen(**document["policy"]),
            "phase": Phase(document["phase"]),
            "step_starts": tuple(document["step_starts"]),
            "waiting_for": None if waiting_for is None else WaitingFor(waiting_for),
            "gate": None if gate is None else GateRecord(**{**gate, "passed": tuple(map(GatePlace, gate["passed"]))}),
        }
    )
