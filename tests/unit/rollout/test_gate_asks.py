"""Asking gates beside the ticks: one attempt at a time, later and later, and what was decided stays decided."""

from dataclasses import replace

import orjson
import pytest

from understudy.adapters.memory.gates import MemoryGates
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.alerts.alerts import Delivery
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.gates import questions
from understudy.core.rollout.plan import Gate, GatePlace, RolloutPlan, Step
from understudy.core.rollout.state import GateAnswer, GateRecord, RolloutState, new_rollout_state
from understudy.rollout.gate_asks import GateAsks

START = GatePlace.BEFORE_START
PLAN = RolloutPlan((Step(10, 60, 10), Step(100, 0, 0)), gates={START: Gate(http="quality")})
STATE = replace(new_rollout_state(7, "churn", PLAN, PolicySeen("6", "7", 0, 3, 7), 1_000.0), gate=GateRecord(1_100.0))
DOWN, PASSES, REFUSES = Delivery(503, "down"), Delivery(200), Delivery(403, "recall")


class World:
    """Gates that answer as told, and a clock that stands until it is moved."""

    def __init__(self, *answers: Delivery | None) -> None:
        self.now = 2_000.0
        self.telemetry = MemoryTelemetry()
        self.gates = MemoryGates({"quality": list(answers)})
        self.asks = GateAsks(self.gates, self.telemetry, "test", now=lambda: self.now)

    async def ask(self, state: RolloutState = STATE) -> GateAnswer | None:
        self.asks.ask(state, questions(state))
        await self.asks.settle()
        return self.asks.answers(state).get(START)


async def test_a_question_without_an_answer_is_asked_again_when_it_is_due_with_the_same_key_and_body():
    world = World(DOWN, PASSES)

    first = await world.ask()
    too_soon = await world.ask()
    world.now += 1.0
    passed = await world.ask()

    assert first == too_soon == GateAnswer(None, "503 down")
    assert passed == GateAnswer(passes=True)
    assert len(world.gates.asked) == 2
    assert world.gates.asked[0] == world.gates.asked[1]
    name, key, body = world.gates.asked[0]
    assert (name, orjson.loads(body)["id"]) == ("quality", key)


@pytest.mark.parametrize(("first", "second"), [(PASSES, REFUSES), (REFUSES, PASSES)])
async def test_what_was_decided_is_not_asked_again_and_no_second_answer_replaces_it(first, second):
    world = World(first, second)

    decided = await world.ask()
    world.now += 10_000
    again = await world.ask()

    assert decided == again
    assert len(world.gates.asked) == 1


async def test_a_service_that_hangs_holds_up_nothing_and_is_asked_once_at_a_time():
    world = World(None)

    world.asks.ask(STATE, questions(STATE))
    world.asks.ask(STATE, questions(STATE))
    answers = world.asks.answers(STATE)
    await world.asks.stop()

    assert answers == {}


async def test_an_answer_is_of_its_own_question_and_not_of_the_next_one_of_the_rollout():
    world = World(REFUSES)
    await world.ask()

    again = replace(STATE, gate=GateRecord(1_200.0, asks=2))

    assert world.asks.answers(again) == {}


async def test_a_gate_that_no_setting_has_gives_no_answer_and_no_series_of_its_own():
    world = World(PASSES)
    state = replace(STATE, plan=replace(PLAN, gates={START: Gate(http="invented")}))

    said = await world.ask(state)

    assert said == GateAnswer(None, "there is no gate invented")
    assert world.telemetry.counts["gate_answers_total", "unknown", "none"] == 1
    assert not [labels for labels in world.telemetry.counts if "invented" in labels]


async def test_questions_of_rollouts_that_are_over_are_forgotten_and_a_new_leader_asks_anew():
    over, lost = World(PASSES), World(PASSES)
    for world in (over, lost):
        await world.ask()

    over.asks.forget_others([8])
    await lost.asks.stop()

    assert over.asks.answers(STATE) == lost.asks.answers(STATE) == {}
    assert await lost.ask() == GateAnswer(passes=True)
    assert lost.gates.asked[0] == lost.gates.asked[1]
