"""What dashboards see of rollouts: bounded labels, counters that begin at 0, and metrics that go with their rollout."""

from dataclasses import replace

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.core.canary.checks import BY_NAME
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence, Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.outcomes.outcome_check import OUTCOMES
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.actions import PolicySeen, RollBack
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import (
    GateRecord,
    Kind,
    Phase,
    RolloutState,
    Transition,
    WaitingFor,
    new_rollout_state,
)
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.metrics import SCORES, STATES, RolloutMetrics, Trigger

POLICY = PolicySeen("6", "7", 10, 4, 1)
STATE = replace(
    new_rollout_state(1, "churn", NAMED_PLANS["default"], POLICY._replace(weight_percent=0), 0.0),
    step_starts=(0.0, 60.0, 120.0),
    policy=POLICY,
)
LABELS = ("churn", "7", "error_rate")


def a_view(state: RolloutState = STATE, rollout_id: int = 1) -> RolloutView:
    record = RolloutRecord(rollout_id, state, 3, 1, 2, "salt", 9_000, None, "dana", None, None)
    return RolloutView(record, POLICY, {}, 2, 2, {}, 200.0)


def a_row(check: Check = ERROR_RATE, state: CheckState = CheckState.FAIL, change: float | None = 2.0) -> Evidence:
    return Evidence(check, state, 0.01, 0.02, change, 1.5, 3.0, 1.0, 500.0, 200.0, 30.0, 20.0, 9_000, 1_000)


def a_decision(*rows: Evidence) -> Decision:
    return Decision(Verdict.HOLD, "early", rows or (a_row(),))


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def metrics(telemetry: MemoryTelemetry) -> RolloutMetrics:
    return RolloutMetrics(telemetry)


def test_an_open_rollout_has_its_step_and_each_check_beside_its_limit(metrics, telemetry):
    metrics.show(a_view(), a_decision())

    assert telemetry.gauges == {
        ("rollout_stage_ratio", "churn"): 0.1,
        ("canary_check_value", *LABELS): 2.0,
        ("canary_check_limit", *LABELS): 1.0,
        ("canary_check_state", *LABELS): 3.0,
    }


def test_a_rollout_at_a_gate_has_how_long_it_waits_there_until_it_goes_on(metrics, telemetry):
    waits = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.APPROVAL, gate=GateRecord(80.0))

    metrics.show(a_view(waits), None)
    shown = telemetry.gauges["rollout_gate_waiting_seconds", "churn", "approval"]
    metrics.show(a_view(), None)

    assert shown == 120.0
    assert not [labels for labels in telemetry.gauges if labels[0] == "rollout_gate_waiting_seconds"]


def test_a_check_that_waits_for_a_cold_server_is_worse_than_unproven_and_has_not_failed():
    assert STATES[CheckState.UNPROVEN] < STATES[CheckState.WARMING] < STATES[CheckState.FAIL]
    assert STATES.keys() == set(CheckState)


def test_what_cannot_be_told_any_more_has_no_value_and_what_is_over_has_no_gauges(metrics, telemetry):
    metrics.show(a_view(), a_decision(a_row(), a_row(SLOW_TAIL)))
    metrics.show(a_view(), a_decision(a_row(state=CheckState.TOO_EARLY, change=None)))

    later = dict(telemetry.gauges)
    metrics.forget_others([1])
    kept = dict(telemetry.gauges)
    metrics.forget_others([2])

    assert ("canary_check_value", *LABELS) not in later
    assert later["canary_check_state", *LABELS] == STATES[CheckState.TOO_EARLY]
    assert not [labels for labels in later if "slow_tail" in labels]
    assert kept == later
    assert telemetry.gauges == {}


def test_the_evidence_against_the_split_is_a_p_value_that_goes_with_its_rollout(metrics, telemetry):
    metrics.show(a_view(), a_decision(a_row(SAMPLE_RATIO)))
    shown = telemetry.gauges["experiment_srm_p_value", "churn", "7"]
    metrics.forget(1)

    assert shown == pytest.approx(1 / 500)
    assert telemetry.gauges == {}


def test_every_rollback_that_may_come_is_counted_at_0_before_it_comes(metrics, telemetry):
    metrics.show(a_view(), None)

    counted = {labels[2:] for labels in telemetry.counts if labels[0] == "rollbacks_total"}

    assert set(telemetry.counts.values()) == {0}
    assert {("canary", name) for name in BY_NAME if not name.startswith(("outcome_", "metric_"))} <= counted
    assert {("canary", "outcome"), ("canary", "metric")} <= counted
    transitions = {labels[2:] for labels in telemetry.counts if labels[0] == "rollout_transitions_total"}
    assert {("WAITING", why.value) for why in WaitingFor} | {("WAITING", "scores")} <= transitions
    assert {
        ("PROGRESSING", "step"),
        ("PROMOTING", "step"),
        ("SUCCEEDED", "retired"),
        ("FAILED", "canary"),
    } <= transitions
    assert {("by_hand", "none"), ("order", "none")} <= counted


ROLL_BACK = (RollBack("6", "7", "bad", POLICY),)
FAILED = replace(STATE, phase=Phase.FAILED)
PROMOTED = replace(STATE, phase=Phase.PROMOTING, promoted_at=180.0, step_starts=(0.0, 60.0, 120.0, 180.0))
GUARD = replace(STATE, kind=Kind.GUARD, step_starts=(0.0,))


@pytest.mark.parametrize(
    ("phase", "reason"), [(Phase.WAITING, "guard"), (Phase.SUCCEEDED, "guard"), (Phase.PROGRESSING, "step")]
)
def test_a_guard_that_alerts_or_ends_is_counted_and_is_no_rollback(metrics, telemetry, phase, reason):
    metrics.count(GUARD, Transition(replace(GUARD, phase=phase), (), "x"), a_decision())

    assert telemetry.counts == {("rollout_transitions_total", "churn", phase.value, reason): 1}


@pytest.mark.parametrize(
    ("before", "transition", "reason"),
    [
        (STATE, Transition(replace(STATE, step_starts=(*STATE.step_starts, 180.0)), (), "on"), "step"),
        (STATE, Transition(replace(STATE, limit_from=9.0), (), "again"), "repeated"),
        (STATE, Transition(replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.SPLIT), (), "x"), "split"),
        (PROMOTED, Transition(replace(PROMOTED, phase=Phase.SUCCEEDED), (), "done"), "retired"),
        (STATE, Transition(FAILED, ROLL_BACK, "bad"), "canary"),
        (PROMOTED, Transition(replace(PROMOTED, phase=Phase.FAILED), ROLL_BACK, "bad"), "after_promotion"),
        (STATE, Transition(FAILED, (), "by hand"), "by_hand"),
        (FAILED, Transition(FAILED, ROLL_BACK, "asks again"), "repeated"),
        (GUARD, Transition(replace(GUARD, phase=Phase.FAILED), ROLL_BACK, "bad"), "guard"),
    ],
)
def test_a_transition_is_counted_with_the_reason_for_it(metrics, telemetry, before, transition, reason):
    metrics.count(before, transition, a_decision())

    assert telemetry.counts["rollout_transitions_total", "churn", transition.state.phase.value, reason] == 1
    rollbacks = {labels[1:]: n for labels, n in telemetry.counts.items() if labels[0] == "rollbacks_total"}
    is_rollback = reason in set(Trigger)
    failed = "error_rate" if reason in ("canary", "after_promotion", "guard") else "none"
    assert rollbacks == ({("churn", reason, failed): 1} if is_rollback else {})


def test_a_warm_up_that_waits_because_of_scores_is_counted_as_such(metrics, telemetry):
    waiting = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.WARM_UP)

    metrics.count(STATE, Transition(waiting, (), "x"), None, held_by=SCORES)

    assert telemetry.counts == {("rollout_transitions_total", "churn", "WAITING", "scores"): 1}


def test_prometheus_takes_all_of_it_and_an_infinite_change_too():
    telemetry = PrometheusTelemetry()
    metrics = RolloutMetrics(telemetry)

    metrics.show(a_view(), a_decision(a_row(change=float("inf"))))
    metrics.count(STATE, Transition(FAILED, ROLL_BACK, "bad"), a_decision())
    metrics.took("churn", 0.62)
    page = telemetry.exposition()[0].decode()
    metrics.forget(1)

    assert 'canary_check_value{check="error_rate",model="churn",version="7"} +Inf' in page
    assert 'rollbacks_total{model="churn",reason="error_rate",trigger="canary"} 1.0' in page
    assert 'rollback_duration_seconds_bucket{le="1.0",model="churn"} 1.0' in page
    assert "canary_check_value{" not in telemetry.exposition()[0].decode()


def test_of_several_versions_beside_further_arms_each_has_its_checks_and_none_the_models_share(metrics, telemetry):
    view = a_view()

    metrics.show(view._replace(record=view.record._replace(guard_id=1)), a_decision())

    assert {name for name, *_ in telemetry.gauges} == {"canary_check_value", "canary_check_limit", "canary_check_state"}


def test_a_rollback_by_one_of_several_outcomes_is_counted_as_one_by_an_outcome(metrics, telemetry):
    row = a_row(OUTCOMES[4])._replace(subject="converted within a day")
    metrics.count_rollback("churn", Trigger.CANARY, a_decision(row))

    assert telemetry.counts["rollbacks_total", "churn", "canary", "outcome"] == 1
    metrics.show(a_view(), a_decision(row))
    assert telemetry.gauges["canary_check_state", "churn", "7", "outcome_5"] == STATES[CheckState.FAIL]
    assert not [labels for labels in telemetry.counts if "outcome_5" in labels]
