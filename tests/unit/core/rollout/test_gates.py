"""Gates of a plan: how they are written and read, and which step each stands before."""

from dataclasses import replace

import orjson
import pytest

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.gates import closed_gate, gate_words, gates_before
from understudy.core.rollout.plan import NAMED_PLANS, Approver, GatePlace, RolloutPlan, Step, plan_to_json
from understudy.core.rollout.plan_reader import plan_violations, read_plan
from understudy.core.rollout.state import RolloutState, new_rollout_state

START, STEP, PROMOTION = GatePlace.BEFORE_START, GatePlace.BEFORE_STEP, GatePlace.BEFORE_PROMOTION
ALL = {START: Approver.ANYONE, STEP: Approver.ANYONE, PROMOTION: Approver.ANOTHER}
PLAN = RolloutPlan((Step(10, 60, 10), Step(50, 60, 10), Step(100, 0, 0)), gates=ALL)


def at_step(index: int, plan: RolloutPlan = PLAN, approved_step: int | None = None) -> RolloutState:
    """Return the state of a rollout that has entered so many steps."""
    begun = new_rollout_state(7, "churn", plan, PolicySeen("6", "7", 0, 3, 7), 1_000.0)
    return replace(begun, step_starts=(1_000.0,) * index, approved_step=approved_step)


def test_a_plan_with_gates_is_written_as_it_is_read_and_one_without_says_nothing_of_them():
    written = orjson.loads(orjson.dumps(plan_to_json(PLAN)))

    assert written["gates"] == {
        "before_start": {"approval": "anyone"},
        "before_step": {"approval": "anyone"},
        "before_promotion": {"approval": "another"},
    }
    assert read_plan(written) == PLAN
    assert "gates" not in plan_to_json(NAMED_PLANS["default"])
    assert read_plan("default").gates == {}


@pytest.mark.parametrize(
    ("gates", "pointer"),
    [
        ([], "/gates"),
        ({"before_lunch": {"approval": "anyone"}}, "/gates/before_lunch"),
        ({"before_step": "anyone"}, "/gates/before_step"),
        ({"before_step": {"approval": "dana"}}, "/gates/before_step"),
        ({"before_step": {}}, "/gates/before_step"),
        ({"before_step": {"approval": "anyone", "url": "https://gate"}}, "/gates/before_step/url"),
        ({"before_step": {"approval": ["anyone"]}}, "/gates/before_step"),
    ],
)
def test_a_gate_that_cannot_be_read_is_refused_at_its_place(gates, pointer):
    assert [found for found, _ in plan_violations({"gates": gates})] == [pointer]


@pytest.mark.parametrize(
    ("index", "weight_percent", "who"),
    [
        (0, 10, [Approver.ANYONE]),
        (1, 50, [Approver.ANYONE]),
        (2, 100, [Approver.ANOTHER]),
        (0, 100, [Approver.ANYONE, Approver.ANOTHER]),
    ],
)
def test_the_first_step_is_the_start_the_last_one_the_promotion_and_one_may_be_both(index, weight_percent, who):
    assert gates_before(ALL, index, weight_percent) == who


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (at_step(0), "version 7 goes from 0 to 10 % once a person approves it"),
        (at_step(1), "version 7 goes from 10 to 50 % once a person approves it"),
        (
            at_step(2),
            "version 7 becomes champion in the place of 6 once another person than the one who started it approves it",
        ),
        (at_step(1, approved_step=1), ""),
        (at_step(2, approved_step=1), "another person"),
        (at_step(3), ""),
        (at_step(1, replace(PLAN, gates={PROMOTION: Approver.ANYONE})), ""),
        (
            at_step(0, replace(NAMED_PLANS["blue_green"], gates={START: Approver.ANYONE, PROMOTION: Approver.ANOTHER})),
            "another person",
        ),
    ],
)
def test_a_closed_gate_says_what_waits_and_for_whom(state, words):
    said = closed_gate(state)

    assert words in said
    assert bool(said) == bool(words)


def test_a_plan_says_beforehand_where_it_waits():
    assert [gate_words(place, who) for place, who in ALL.items()] == [
        "It waits before its first share until a person approves it",
        "It waits before each later step until a person approves it",
        "It waits before the promotion until another person than the one who started it approves it",
    ]
