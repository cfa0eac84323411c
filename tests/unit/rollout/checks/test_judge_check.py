"""The judge of open rollouts: who is asked about what, what is kept, and what a failure costs."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from understudy.adapters.memory.judges import MemoryJudges, Opinion
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.canary.judge_limits import BudgetStop, JudgeLimit, budget_stop
from understudy.core.canary.judgement_records import JudgeOutcome, JudgeQuestion, JudgeRecord
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS, RolloutPlan
from understudy.core.rollout.state import new_rollout_state
from understudy.errors import LeadershipLost, RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.rollout_store import NewQuestion, RecordSeen, RolloutRecord, RolloutStore
from understudy.rollout.checks.answer_pairs import AnswerPair, AnswerPairs, Drawn
from understudy.rollout.checks.judge_check import IDLE_SECONDS, JudgeCheck

BEGAN = 600_000.0
QUALITY = {"name": "quality", "calls_per_minute": 20, "cost_per_call": 0.01, "money_per_day": 0.5}
EPOCH: Epoch = 3


class Rollouts:
    """One rollout that began, and what is stored of its judge."""

    def __init__(self, plan: RolloutPlan) -> None:
        self.plan = plan
        self.now = BEGAN + 150.0
        self.problem: Exception | None = None
        self.questions: dict[int, JudgeQuestion] = {}
        self.idle: JudgeOutcome | None = None

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        yield

    async def open_ids(self) -> Sequence[int]:
        return [1]

    async def record(self, rollout_id: int) -> RecordSeen:
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        state = new_rollout_state(rollout_id, "churn", self.plan, policy._replace(weight_percent=0), BEGAN)
        state = replace(state, step_starts=(BEGAN,), policy=policy)
        return RecordSeen(RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None), self.now)

    async def judge_record(self, record: RolloutRecord) -> JudgeRecord:
        return JudgeRecord(list(self.questions.values()), self.idle)

    async def judge_budget(self, record: RolloutRecord, limit: JudgeLimit) -> BudgetStop | None:
        asked = [one for one in self.questions.values() if one.outcome is not JudgeOutcome.EQUAL]
        lately = sum(self.now - one.asked_at < 60 for one in asked)
        return budget_stop(limit, lately, sum(one.cost_micros for one in asked), len(self.questions))

    async def reserve_question(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch
    ) -> JudgeQuestion | BudgetStop:
        if self.problem is not None:
            raise self.problem
        assert epoch == EPOCH
        stop = await self.judge_budget(record, limit)
        if stop is not None:
            return stop
        number = len(self.questions) + 1
        known = (new.pair, new.is_challenger_first, new.entity_bucket)
        self.questions[number] = JudgeQuestion(number, *known, self.now, limit.cost_micros)
        return self.questions[number]

    async def add_tie(
        self, record: RolloutRecord, limit: JudgeLimit, new: NewQuestion, *, epoch: Epoch
    ) -> JudgeQuestion | None:
        number = len(self.questions) + 1
        tie = JudgeQuestion(number, new.pair, False, 0, self.now, 0, JudgeOutcome.EQUAL, self.now, 0.0)
        self.questions[number] = tie
        return tie

    async def settle_question(
        self, question_id: int, outcome: JudgeOutcome, difference: float | None, *, epoch: Epoch
    ) -> float | None:
        if self.problem is not None:
            raise self.problem
        self.questions[question_id] = self.questions[question_id]._replace(
            outcome=outcome, difference=difference, answered_at=self.now
        )
        return self.now

    async def set_judge_idle(
        self, record: RolloutRecord, limit: JudgeLimit, idle: JudgeOutcome | None, *, epoch: Epoch
    ) -> None:
        self.idle = idle


class Pairs:
    """Gives pairs that are not known; the champion's score is the lower one."""

    def __init__(self) -> None:
        self.drawn = Drawn()
        self.asked: list[int] = []
        self.is_equal = False
        self.count = 0

    async def draw(
        self, record: RolloutRecord, limit: JudgeLimit, known: Collection[str], at_most: int, now: float
    ) -> Drawn:
        self.asked.append(at_most)
        if self.drawn.idle is not None:
            return self.drawn
        new = 0.5 if self.is_equal else 0.9
        found = [
            AnswerPair(
                f"pair {self.count + place}", "id", place % 64, {"tenure": place}, {"score": 0.5}, {"score": new}
            )
            for place in range(at_most)
        ]
        self.count += at_most
        return Drawn(found)


class World:
    def __init__(self, opinion: Opinion, *draws: float, judge: Mapping[str, Any] = QUALITY) -> None:
        self.rollouts = Rollouts(replace(NAMED_PLANS["default"], canary_limits={"judge": dict(judge)}))
        self.judges = MemoryJudges({"quality": opinion})
        self.pairs, self.telemetry = Pairs(), MemoryTelemetry()
        self.draws = list(draws)
        self.check = self.next_leader()

    def next_leader(self) -> JudgeCheck:
        store, pairs = cast("RolloutStore", self.rollouts), cast("AnswerPairs", self.pairs)
        draws = iter(self.draws * 1_000)
        return JudgeCheck(store, self.judges, pairs, self.telemetry, draw=lambda: next(draws))

    async def go_on(self, seconds: float = 0.0) -> None:
        self.rollouts.now += seconds
        await self.check.tick(EPOCH)
        await self.check.settle()
        await self.check.tick(EPOCH)
        await self.check.settle()


def lower_wins(question: Mapping[str, Any]) -> float:
    return 1.0 if question["first"]["score"] < question["second"]["score"] else -1.0


def spent(world: World) -> int:
    return sum(one.cost_micros for one in world.rollouts.questions.values())


async def test_the_challenger_stands_in_either_place_and_loses_in_both():
    world = World(lower_wins, 0.4, 0.9, 0.6, 0.9)

    await world.go_on()
    await world.go_on(1)

    seen = world.check.latest(1)
    assert len(seen.differences) == 20
    assert set(seen.differences) == {-1.0}
    assert seen.first_points == 10.0
    assert {question["first"]["score"] for question in world.judges.asked} == {0.5, 0.9}
    assert world.telemetry.counts["judge_questions_total", "quality", "answered"] == 20


async def test_a_pair_in_both_orders_takes_the_preference_for_a_place_away():
    world = World(lambda _: 1.0, 0.4, 0.01)

    await world.go_on()
    await world.go_on(1)

    seen = world.check.latest(1)
    assert (len(seen.differences), seen.both_ways, seen.contradicted) == (10, 10, 10)
    assert set(seen.differences) == {0.0}


async def test_calls_a_minute_and_money_a_day_are_held():
    world = World(lower_wins, 0.4, 0.9)

    await world.go_on()
    await world.go_on(30)
    first = len(world.judges.asked)
    for _ in range(5):
        await world.go_on(61)

    assert first == 20
    assert len(world.judges.asked) == 50
    assert spent(world) == 500_000
    assert world.rollouts.idle is JudgeOutcome.MONEY_SPENT


async def test_a_challenger_is_sent_nothing_once_the_money_is_spent():
    world = World(lower_wins, 0.4, 0.9, judge={**QUALITY, "money_per_day": 0.02})

    await world.go_on()
    drawn = len(world.pairs.asked)
    for _ in range(3):
        await world.go_on(IDLE_SECONDS + 1)

    assert len(world.pairs.asked) == drawn
    assert len(world.judges.asked) == 2


async def test_equal_answers_are_ties_that_no_judge_is_asked_about():
    world = World(lower_wins, 0.4, 0.9)
    world.pairs.is_equal = True

    await world.go_on()
    await world.go_on(1)

    assert not world.judges.asked
    assert spent(world) == 0
    assert world.check.latest(1).equal >= 20


async def test_a_judge_that_fails_is_asked_once_a_minute():
    world = World(lambda _: JudgeOutcome.DOWN, 0.4, 0.9)

    await world.go_on()
    first = len(world.judges.asked)
    await world.go_on(30)
    early = len(world.judges.asked)
    await world.go_on(31)

    assert 5 <= first <= 8
    assert early == first
    assert len(world.judges.asked) == first + 1
    assert world.check.latest(1).problem == "down"


async def test_a_judge_that_no_setting_names_costs_nothing():
    world = World(lower_wins, 0.4, 0.9, judge={**QUALITY, "name": "invented"})

    await world.go_on()

    assert not world.judges.asked
    assert not world.pairs.asked
    assert (spent(world), world.rollouts.idle) == (0, JudgeOutcome.UNKNOWN_JUDGE)


async def test_why_there_is_nothing_to_ask_is_stored_and_asked_again_after_a_minute():
    world = World(lower_wins, 0.4, 0.9)
    world.pairs.drawn = Drawn(idle=JudgeOutcome.NO_INPUTS)

    await world.go_on()
    await world.go_on(10)
    world.pairs.drawn = Drawn()
    await world.go_on(61)

    assert world.pairs.asked == [20, 20]
    assert world.rollouts.idle is None
    assert len(world.judges.asked) == 20


async def test_the_next_leader_goes_on_with_what_is_stored():
    world = World(lower_wins, 0.4, 0.9)
    await world.go_on()

    world.check = world.next_leader()
    await world.go_on(1)

    assert len(world.check.latest(1).differences) == 20
    assert len(world.judges.asked) == 20


async def test_an_answer_that_postgres_did_not_take_is_stored_later():
    world = World(lower_wins, 0.4, 0.9)
    world.rollouts.problem = RegistryUnavailable("Postgres is away")
    await world.go_on()
    none = dict(world.rollouts.questions)
    world.rollouts.problem = None

    await world.go_on(1)

    assert not none
    assert len(world.judges.asked) == 20


async def test_a_leader_that_has_lost_its_lease_asks_no_judge():
    world = World(lower_wins, 0.4, 0.9)
    world.rollouts.problem = LeadershipLost("epoch 3 is over")

    await world.go_on()

    assert not world.judges.asked


async def test_a_judge_that_hangs_holds_up_no_tick_and_ends_with_the_leader():
    world = World(lambda _: None, 0.4, 0.9)

    for _ in range(3):
        world.rollouts.now += 1
        await world.check.tick(EPOCH)
    await world.check.stop()

    assert world.check.latest(1).asked == 0
