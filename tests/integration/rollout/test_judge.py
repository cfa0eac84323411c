"""A judge of a plan, over real Postgres, model servers and HTTP: what is asked, what it costs, and what moves."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import asyncpg
import numpy as np
import pytest
from command import CommandLine
from loopback.judge import JudgeServer
from loopback.receiver import HANG
from worlds.score import Scores, WarmUps, serving

from understudy.adapters.http.judges import HttpJudges
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.model_servers.connect import PROTOCOLS, connect
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgements.judge_check import JUDGE, unreadable_words
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase
from understudy.rollout.checks.answer_pairs import AnswerPairs
from understudy.rollout.checks.judge_check import JudgeCheck
from understudy.rollout.verdicts.replay import Replay, judged_again, read_evidence

pytestmark = pytest.mark.timeout(120)
NEW = 0.9921875
"""What the challenger answers to everyone, exact as a float32: so the judge of the test knows whose answer it is."""


def constant(scores: Scores) -> Scores:
    return np.full_like(scores, NEW)


def champion_wins(question: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"winner": "second" if question["first"]["score"] == NEW else "first"}


class World:
    """A rollout that a judge looks at, and a monitor that leads."""

    def __init__(self, rollouts: WarmUps, server: JudgeServer) -> None:
        self.rollouts, self.server = rollouts, server
        self.judges = HttpJudges({"quality": server.url}, {"quality": "s3cr3t-token"}, timeout_seconds=0.5)
        self.policies = PostgresPolicySource(rollouts.url, timeout_seconds=5)
        self.telemetry = MemoryTelemetry()
        self.check = self.another_leads()
        self.id = 0

    def another_leads(self, **options: Any) -> JudgeCheck:
        history = PostgresPredictionHistory(self.rollouts.url, timeout_seconds=5)
        pairs = AnswerPairs(self.policies, connect, PROTOCOLS, history)
        self.check = JudgeCheck(self.rollouts.store, self.judges, pairs, self.telemetry, **options)
        self.rollouts.judgements_of = self.check.latest
        return self.check

    async def begin(self, port: int, calls: int = 200, **judge: Any) -> None:
        await self.rollouts.add(2, port)
        await self.rollouts.log(calls)
        asked = {"name": "quality", "min_judgements": 50, "calls_per_minute": 600, **judge}
        plan = replace(NAMED_PLANS["default"], canary_limits={"judge": asked}, expect_different_scores=True)
        self.id = await self.rollouts.start(2, plan)
        await self.rollouts.tick()

    async def go_on(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await self.check.tick(self.rollouts.epoch)
            await self.check.settle()
        await self.check.tick(self.rollouts.epoch)

    async def spent(self) -> tuple[int, int]:
        row = await self.rollouts.database.fetchrow(
            "SELECT count(*) AS questions, coalesce(sum(cost_micros), 0)::bigint AS micros FROM JudgeQuestion"
            " WHERE pair <> '' AND outcome IS DISTINCT FROM 'equal'"
        )
        assert row is not None
        return row["questions"], row["micros"]


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    lease = PostgresLease(database_url)
    epoch = await lease.take_or_renew("here")
    assert epoch is not None
    rollouts = WarmUps(database, database_url, epoch)
    await rollouts.begin()
    async with JudgeServer() as server:
        found = World(rollouts, server)
        yield found
        await found.check.stop()
        await found.judges.close()
        await found.policies.close()
    await rollouts.close()
    await lease.close()


async def test_a_challenger_that_loses_is_taken_back_and_its_verdict_is_judged_again_to_the_same(
    world: World, understudy: CommandLine
):
    world.server.opinion = champion_wins
    async with serving(2, constant) as (_, port):
        await world.begin(port)
        await world.go_on(2)
        early = await understudy.beside("rollout", "show", "visits")

        ended = await world.rollouts.tick()

    assert ended.record.state.phase is Phase.FAILED
    assert ended.policy is not None
    assert ended.policy.weight_percent == 0
    assert "win rate by judge quality 0 % vs 100 % = 0x" in ended.record.state.reason
    assert "win rate by judge quality" in " ".join(early.out.split())
    events = await world.rollouts.store.events(world.id)
    fatal = next(event for event in events if event.verdict is Verdict.ROLL_BACK)
    assert next(row for row in read_evidence(fatal) if row.check is JUDGE).state is CheckState.FAIL
    replays = [found for _, found in judged_again(events) if isinstance(found, Replay)]
    assert replays
    assert all(replay.agrees for replay in replays)
    questions = world.server.questions
    places = Counter(question["first"]["score"] == NEW for question in questions)
    assert min(places[True], places[False]) >= 10
    assert {frozenset(question) for question in questions} == {
        frozenset({"id", "type", "model", "inputs", "first", "second"})
    }
    assert world.server.requests[0][0]["authorization"] == "Bearer s3cr3t-token"
    pairs = Counter(str(question["inputs"]) for question in questions)
    assert max(pairs.values()) <= 2


async def test_money_is_held_to_the_millionth_whoever_leads_and_however_many_ask_at_once(world: World):
    async with serving(2, constant) as (_, port):
        await world.begin(port, cost_per_call=0.003, money_per_day=0.05)
        one, other = world.check, world.another_leads()
        await asyncio.gather(one.tick(world.rollouts.epoch), other.tick(world.rollouts.epoch))
        await asyncio.gather(one.settle(), other.settle())
        await world.go_on()
        await one.stop()

        assert await world.spent() == (16, 48_000)
        assert len(world.server.requests) == 16
        world.another_leads()
        await world.go_on(2)

    assert await world.spent() == (16, 48_000)
    view = await world.rollouts.tick()
    assert view.record.state.phase is Phase.PROGRESSING
    assert world.check.latest(world.id).idle == "money_spent"


async def test_calls_a_minute_are_held_and_the_challenger_is_sent_no_more_than_can_be_asked(world: World):
    async with serving(2, constant) as (model, port):
        await world.begin(port, calls_per_minute=7)
        await world.go_on(3)
        asked = await world.spent()
        sent = model.calls

    assert asked == (7, 0)
    assert len(world.server.requests) == 7
    assert sent <= 5 + 200 + 3 * 7


@pytest.mark.parametrize(
    ("instead", "opinion", "said"),
    [
        (HANG, None, "quality does not answer in time"),
        ((500, "", b"s3cr3t-token is busy"), None, "quality answers with an error"),
        (None, {"id": "judge_0", "winner": "first"}, "quality answers other questions than it is asked"),
    ],
    ids=["slow", "error", "other ids"],
)
async def test_a_judge_that_fails_holds_the_step_and_costs_a_question_a_minute(
    world: World, understudy: CommandLine, instead: Any, opinion: Any, said: str
):
    world.another_leads(draw=lambda: 0.3)  # no pair is asked both ways, which would cost a question more
    world.server.instead = instead
    world.server.opinion = lambda _: opinion
    async with serving(2, constant) as (_, port):
        await world.begin(port, cost_per_call=0.01, money_per_day=1.0)
        await world.go_on(3)
        shown = await understudy.beside("rollout", "show", "visits")

    questions, micros = await world.spent()
    assert 5 <= questions <= 8
    assert micros == questions * 10_000
    assert unreadable_words(world.check.latest(world.id), JudgeLimit("quality")).startswith(said)
    assert "✖ invalid" in shown.out
    assert (await world.rollouts.tick()).record.state.phase is Phase.PROGRESSING
