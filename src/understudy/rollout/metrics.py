"""What dashboards see of open rollouts: steps, checks beside their limits, and how rollouts ended."""

from collections.abc import Collection
from enum import StrEnum

from understudy.core.canary.checks import BY_NAME
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence
from understudy.core.canary.metrics.metric_check import METRICS
from understudy.core.canary.outcomes.outcome_check import OUTCOME, OUTCOMES
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.actions import RollBack
from understudy.core.rollout.state import Kind, Phase, RolloutState, Transition, WaitingFor
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.ports.telemetry.telemetry import Telemetry

STATES = {
    CheckState.OK: 0,
    CheckState.TOO_EARLY: 1,
    CheckState.UNPROVEN: 2,
    CheckState.WARMING: 2.5,
    CheckState.SHARED: 2.75,
    CheckState.FAIL: 3,
    CheckState.INVALID: 4,
}
"""What ``canary_check_state`` is in each state: the worse, the higher, and from 3 on it is no wait any more."""


class Trigger(StrEnum):
    """What ended a rollout with the old champion."""

    CANARY = "canary"
    """The analysis, before the promotion."""
    AFTER_PROMOTION = "after_promotion"
    """The analysis, while the old champion was kept warm."""
    BY_HAND = "by_hand"
    """An operator who changed the policy."""
    COMMAND = "order"
    """An operator who aborted the rollout."""
    GUARD = "guard"
    """The analysis of a split that an operator had set."""


STEP, RETIRED, REPEATED, NO_CHECK = "step", "retired", "repeated", "none"
METRIC = "metric"
"""Of a rollback for any of the metrics of an operator's own."""
SCORES = "scores"
"""Of a warm-up that was answered, with scores unlike the champion's."""
ENTITIES = "entities"
"""Of a step that is held because the challenger fails a few of them."""
SLICES = "slices"
"""Of a step that is held because the challenger does worse for a category or a value of a feature."""
SHARED_ERRORS = "shared_errors"
"""Of a step that is held because of errors that the champion had as well."""
_JUDGED = (Trigger.CANARY, Trigger.AFTER_PROMOTION, Trigger.GUARD)
_TRANSITIONS = (
    (Phase.PROGRESSING, (STEP, REPEATED)),
    (Phase.WAITING, (*WaitingFor, SCORES, ENTITIES, SLICES, SHARED_ERRORS, Trigger.GUARD)),
    (Phase.PROMOTING, (STEP, REPEATED)),
    (Phase.SUCCEEDED, (RETIRED, Trigger.GUARD)),
    (Phase.FAILED, (Trigger.CANARY, Trigger.AFTER_PROMOTION, Trigger.BY_HAND, Trigger.GUARD)),
)
"""What a monitor may count, and why."""
_Labels = tuple[str, ...]


class RolloutMetrics:
    """Sets the gauges of open rollouts, counts what happens to them, and forgets those that are over.

    Args:
        telemetry: Gets all of it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._shown: dict[int, set[_Labels]] = {}
        """The gauges of each rollout by name and labels."""

    def show(self, view: RolloutView, decision: Decision | None) -> None:
        """Set a rollout's gauges; a check without a value has none."""
        state = view.record.state
        if view.record.id not in self._shown:
            begin_counts(self._telemetry, state.model_name)
        gauges: dict[_Labels, float] = {}
        if view.record.guard_id is None:  # of several versions no single share is the model's
            gauges["rollout_stage_ratio", state.model_name] = state.weight_percent / 100
        if state.gate is not None and state.is_at_gate:
            waited_seconds = max(0.0, view.read_at - state.gate.since)
            gauges["rollout_gate_waiting_seconds", state.model_name, str(state.waiting_for)] = waited_seconds
        for row in () if decision is None else decision.evidence:
            gauges |= _gauges_of(row, (state.model_name, state.challenger, row.check.name))
        for (name, *labels), value in gauges.items():
            self._telemetry.set(name, value, *labels)
        self._drop(self._shown.get(view.record.id, set()) - gauges.keys())
        self._shown[view.record.id] = set(gauges)

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Drop the gauges of all rollouts but these."""
        for rollout_id in self._shown.keys() - set(rollout_ids):
            self.forget(rollout_id)

    def forget(self, rollout_id: int) -> None:
        """Drop a rollout's gauges, if it has any: nothing is judged any more."""
        self._drop(self._shown.pop(rollout_id, set()))

    def count(
        self,
        before: RolloutState,
        transition: Transition,
        decision: Decision | None,
        *,
        held_by: str | None = None,
    ) -> None:
        """Count a transition of the monitor's own, and the rollback that it may be.

        ``held_by`` is :data:`SCORES`, :data:`ENTITIES`, :data:`SLICES` or :data:`SHARED_ERRORS` where a rollout waits
        because of these.
        """
        state = transition.state
        trigger = _trigger_of(before, transition)
        if trigger is not None:
            self.count_rollback(state.model_name, trigger, decision)
        reason = trigger.value if trigger is not None else held_by or _reason_of(before, state)
        self._telemetry.count("rollout_transitions_total", state.model_name, state.phase.value, reason)

    def count_rollback(self, model_name: str, trigger: Trigger, decision: Decision | None = None) -> None:
        """Count a rollback; of one on evidence the reason is the first check that failed."""
        failing = _failing(decision) if trigger in _JUDGED else []
        self._telemetry.count("rollbacks_total", model_name, trigger.value, next(iter(failing), NO_CHECK))

    def took(self, model_name: str, seconds: float) -> None:
        """Remember how long an end took from its decision until every live proxy had confirmed it."""
        self._telemetry.observe("rollback_duration_seconds", seconds, model_name)

    def _drop(self, gone: Collection[_Labels]) -> None:
        for name, *labels in gone:
            self._telemetry.forget(name, *labels)


def begin_counts(telemetry: Telemetry, model_name: str) -> None:
    """Have everything that may be counted of a model's rollouts there at 0.

    A counter that first appears with 1 has not increased, for Prometheus.
    """
    for trigger in Trigger:
        for reason in (*_REASONS, NO_CHECK) if trigger in _JUDGED else (NO_CHECK,):
            telemetry.count("rollbacks_total", model_name, trigger.value, reason, by=0)
    for phase, reasons in _TRANSITIONS:
        for reason in reasons:
            telemetry.count("rollout_transitions_total", model_name, phase.value, str(reason), by=0)


def _gauges_of(row: Evidence, labels: _Labels) -> dict[_Labels, float]:
    gauges: dict[_Labels, float] = {("canary_check_state", *labels): STATES[row.state]}
    if row.change is not None:
        gauges["canary_check_value", *labels] = row.change
    if row.limit is not None:
        gauges["canary_check_limit", *labels] = row.limit
    if row.check is SAMPLE_RATIO and row.evidence is not None:
        # Evidence against the split that may be looked at at any time: its inverse is a p-value that may, too.
        gauges["experiment_srm_p_value", *labels[:2]] = 1 / max(row.evidence, 1.0)
    return gauges


def _counted(check: Check) -> str:
    """Return the name that a rollback is counted by: which of several outcomes it was, its event says."""
    if check in METRICS:
        return METRIC
    return OUTCOME.name if check in OUTCOMES else check.name


_REASONS = dict.fromkeys(_counted(check) for check in BY_NAME.values())


def _failing(decision: Decision | None) -> list[str]:
    rows = () if decision is None else decision.evidence
    return [_counted(row.check) for row in rows if row.state is CheckState.FAIL]


def _trigger_of(before: RolloutState, transition: Transition) -> Trigger | None:
    """Return who took a rollout back; ``None`` for every other transition, and for one that only asks again."""
    if transition.state.phase is not Phase.FAILED or before.phase.is_final:
        return None
    if not any(isinstance(action, RollBack) for action in transition.actions):
        return None if before.kind is Kind.GUARD else Trigger.BY_HAND
    if before.kind is Kind.GUARD:
        return Trigger.GUARD
    return Trigger.CANARY if before.promoted_at is None else Trigger.AFTER_PROMOTION


def _reason_of(before: RolloutState, state: RolloutState) -> str:
    """Return why a rollout moved on or stopped."""
    if state.phase is Phase.WAITING and state.waiting_for is not None:
        return state.waiting_for.value
    if state.kind is Kind.GUARD:
        return STEP if state.phase is Phase.PROGRESSING else Trigger.GUARD.value
    if state.phase is Phase.SUCCEEDED:
        return RETIRED
    return STEP if len(state.step_starts) > len(before.step_starts) else REPEATED
