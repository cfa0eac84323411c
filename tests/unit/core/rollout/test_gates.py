"""Gates of a plan: how they are written and read, and which step each stands before."""

from dataclasses import replace

import orjson
import pytest

from understudy.core.alerts.alerts import Delivery
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.gates import (
    answer_of,
    closed_gate,
    gate_words,
    gates_before,
    next_ask_seconds,
    question_key,
    question_to_json,
)
from understudy.core.rollout.plan import NAMED_PLANS, Approver, Gate, GatePlace, RolloutPlan, Step, plan_to_json
from understudy.core.rollout.plan_reader import plan_violations, read_plan
from understudy.core.rollout.state import GateRecord, RolloutState, new_rollout_state

START, STEP, PROMOTION = GatePlace.BEFORE_START, GatePlace.BEFORE_STEP, GatePlace.BEFORE_PROMOTION
ANYONE, ANOTHER = Gate(Approver.ANYONE), Gate(Approver.ANOTHER)
QUALITY = Gate(http="quality")
ALL = {START: ANYONE, STEP: ANYONE, PROMOTION: ANOTHER}
PLAN = RolloutPlan((Step(10, 60, 10), Step(50, 60, 10), Step(100, 0, 0)), gates=ALL)

KEY = "gate_e2a3f127fd10c0ded039a05f28f0674f"
"""Of one question, in every release."""


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
        ({"before_step": {"http": "https://gate"}}, "/gates/before_step"),
        ({"before_step": {"http": None}}, "/gates/before_step"),
        ({"before_step": None}, "/gates/before_step"),
        ({"before_step": {"approval": ["anyone"]}}, "/gates/before_step"),
    ],
)
def test_a_gate_that_cannot_be_read_is_refused_at_its_place(gates, pointer):
    assert [found for found, _ in plan_violations({"gates": gates})] == [pointer]


@pytest.mark.parametrize("ladder", [{"strategy": "blue_green"}, {"steps": [10, 100]}])
def test_a_gate_before_a_step_that_the_plan_has_not_is_refused_instead_of_never_asked(ladder):
    gates = {"before_step": {"approval": "another"}}

    ((pointer, why),) = plan_violations({**ladder, "gates": gates})

    assert pointer == "/gates/before_step"
    assert "before_promotion" in why
    assert not plan_violations({"steps": [10, 50, 100], "gates": gates})


@pytest.mark.parametrize(
    ("index", "weight_percent", "who"),
    [
        (0, 10, [ANYONE]),
        (1, 50, [ANYONE]),
        (2, 100, [ANOTHER]),
        (0, 100, [ANYONE, ANOTHER]),
    ],
)
def test_the_first_step_is_the_start_the_last_one_the_promotion_and_one_may_be_both(index, weight_percent, who):
    assert list(gates_before(ALL, index, weight_percent).values()) == who


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
        (at_step(1, replace(PLAN, gates={PROMOTION: ANYONE})), ""),
        (
            at_step(0, replace(NAMED_PLANS["blue_green"], gates={START: ANYONE, PROMOTION: ANOTHER})),
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


def test_a_gate_over_http_is_written_as_it_is_read_and_says_who_stands_in_for_the_service():
    plan = replace(PLAN, gates={START: QUALITY, PROMOTION: Gate(Approver.ANOTHER, "quality")})

    written = orjson.loads(orjson.dumps(plan_to_json(plan)))

    assert written["gates"] == {
        "before_start": {"http": "quality"},
        "before_promotion": {"approval": "another", "http": "quality"},
    }
    assert read_plan(written) == plan
    assert [gate_words(place, gate) for place, gate in plan.gates.items()] == [
        "It waits before its first share until quality lets it pass, or a person approves it in its place",
        (
            "It waits before the promotion until quality lets it pass, or another person than the one who started it "
            "approves it in its place"
        ),
    ]


@pytest.mark.parametrize(
    ("delivery", "passes", "detail"),
    [
        (Delivery(200), True, ""),
        (Delivery(204), True, ""),
        (Delivery(202), None, "it has not decided"),
        (Delivery(403, "the\0 recall\n fell \x1b[31m"), False, "the recall fell [31m"),
        (Delivery(302), None, "302"),
        (Delivery(404, "no page"), None, "404 no page"),
        (Delivery(500, "x" * 999), None, f"500 {'x' * 296}"),
        (Delivery(None, "no answer within 10 s"), None, "no answer within 10 s"),
    ],
)
def test_nothing_but_a_success_that_is_no_promise_opens_a_gate(delivery, passes, detail):
    assert answer_of(delivery) == (passes, detail)


@pytest.mark.parametrize(
    ("attempts", "delivery", "seconds"),
    [(1, Delivery(500), 1), (4, Delivery(500), 8), (99, Delivery(404), 60), (1, Delivery(429, "", 7), 7)],
)
def test_a_service_is_asked_later_and_later_and_when_it_says(attempts, delivery, seconds):
    assert next_ask_seconds(attempts, delivery) == seconds


def test_a_question_has_its_own_key_and_the_same_body_each_time():
    state = at_step(1, replace(PLAN, gates={STEP: QUALITY}))
    asked = replace(state, gate=GateRecord(1_200.0))
    others = [
        replace(state, rollout_id=8),
        replace(state, started_at=1_001.0),
        replace(state, gate=GateRecord(1_200.0, asks=2)),
        at_step(0, state.plan),
    ]

    keys = {question_key(one, STEP, "test") for one in (asked, *others)}

    assert question_key(asked, STEP, "test") == question_key(state, STEP, "test") == KEY
    assert len({*keys, question_key(state, STEP, "prod"), question_key(state, START, "test")}) == len(others) + 3
    assert question_to_json(asked, STEP, "test") == {
        "id": question_key(asked, STEP, "test"),
        "type": "understudy.gate",
        "gate": "quality",
        "place": "before_step",
        "environment": "test",
        "model": "churn",
        "rollout": 7,
        "champion": "6",
        "challenger": "7",
        "weight_percent": 10,
        "next_weight_percent": 50,
        "asked_at": 1_200.0,
    }
