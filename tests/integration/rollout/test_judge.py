"""A judge of a plan or a guard, over real Postgres, model servers and HTTP: its questions, its cost, what moves."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import orjson
import pytest
from command import CommandLine
from loopback.judge import JudgeServer, Opinion
from loopback.receiver import HANG
from traffic.spooled_rows import a_row
from worlds.score import ROWS, Scores, WarmUps, serving

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.http.judges import HttpJudges
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.model_servers.connect import PROTOCOLS, connect
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgements.judge_check import JUDGE, unreadable_words
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.checks.answer_pairs import AnswerPairs
from understudy.rollout.checks.judge_check import JudgeCheck
from understudy.rollout.verdicts.replay import Replay, judged_again, read_evidence

pytestmark = pytest.mark.timeout(240)
NEW = 0.9921875
"""What the challenger answers to everyone, exact as a float32: so the judge of the test knows whose answer it is."""


def constant(scores: Scores) -> Scores:
    return np.full_like(scores, NEW)


def champion_wins(question: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"winner": "second" if question["first"]["score"] == NEW else "first"}


def wins(percent: int) -> Opinion:
    """Return who prefers the challenger for so many of a hundred inputs, in whatever place it stands."""

    def opinion(question: Mapping[str, Any]) -> Mapping[str, Any]:
        inputs = orjson.dumps(question["inputs"], option=orjson.OPT_SORT_KEYS)
        is_won = int.from_bytes(blake2b(inputs, digest_size=8).digest()) % 100 < percent
        return {"winner": "first" if is_won is (question["first"]["score"] == NEW) else "second"}

    return opinion


class World:
    """A rollout or a guard that a judge looks at, and a monitor that leads."""

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

    async def begin_guard(self, port: int, mode: str, calls: int = 2_000, **asked: Any) -> None:
        """Give the challenger a share by SQL, of a model whose guards a judge looks at."""
        challenger = await self.rollouts.add(2, port)
        await self._log(calls)
        judge = {"name": "quality", "calls_per_minute": 600, "cost_per_call": 0.001, "money_per_day": 10, **asked}
        self.rollouts.guard_settings = GuardSettings(judges={"*": judge})
        self.rollouts.executor = self.rollouts.new_executor()
        await self.rollouts.database.execute(
            "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10, guard = $2", challenger, mode
        )
        await self.check.tick(self.rollouts.epoch)  # before the guard begins, with which it gets its judge
        await self.rollouts.tick()
        self.id = await self.rollouts.store.latest_id("visits")

    async def _log(self, calls: int) -> None:
        now: float = await self.rollouts.database.fetchval("SELECT extract(epoch FROM now())::float8")
        rows = [
            a_row(version_id=self.rollouts.versions[1])._replace(
                predicted_at=now - 3_000 + place,
                entity_id=f"person-{place}",
                inputs=orjson.dumps(ROWS[place].inputs),
            )
            for place in range(calls)
        ]
        await self.rollouts.traffic.ship(rows)

    async def hears(self, judgements: int) -> None:
        """Let minutes pass, with another leader after each, until the judge has said so much."""
        while len(self.check.latest(self.id).differences) < judgements:
            await self.go_on(10)
            await self.rollouts.database.execute("UPDATE JudgeQuestion SET asked_at = asked_at - INTERVAL '1 minute'")
            await self.others_lead()

    async def ends_within(self, judgements: int) -> RolloutView:
        """Look after each hundred judgements until the guard has come to something."""
        for said in range(200, judgements + 1, 100):
            await self.hears(said)
            seen = await self.rollouts.tick()
            if seen.record.state.phase is not Phase.PROGRESSING:
                return seen
        raise AssertionError(f"nothing was found within {judgements} judgements")

    async def others_lead(self) -> None:
        """Let another monitor lead, which reads what is stored."""
        await self.check.stop()
        self.another_leads()
        await self.check.tick(self.rollouts.epoch)

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


@pytest.mark.parametrize(("mode", "end"), [("rollback", (0, "canary_rolled_back")), ("alert", (10, "guard_failed"))])
async def test_a_guard_takes_back_a_share_that_loses_three_to_two_or_alerts_where_it_may_do_no_more(
    world: World, understudy: CommandLine, tmp_path: Path, mode: str, end: tuple[int, str]
):
    world.server.opinion = wins(40)
    async with serving(2, constant) as (_, port):
        await world.begin_guard(port, mode)

        ended = await world.ends_within(1_000)

    events = await world.rollouts.store.events(world.id)
    shown = await understudy.beside("rollout", "show", "visits")
    page = await understudy.beside("rollout", "show", "visits", "--html", str(tmp_path / "guard.html"))
    state = ended.record.state
    assert any(event.reason.endswith("and by the judge quality") for event in events)
    assert ended.policy is not None
    (incident,) = [kind for kind, action in await world.rollouts.told() if action == "trigger"]
    assert (ended.policy.weight_percent, incident) == end
    assert state.has_failed_guard == (mode == "alert")
    assert re.search(r"win rate by judge quality (3|4)[\d.]* % vs (5|6)", state.reason)
    replays = [found for _, found in judged_again(events) if isinstance(found, Replay)]
    assert replays
    assert all(replay.agrees for replay in replays)
    assert re.search(r"judge quality: [2-9]\d\d judgements of", " ".join(shown.out.split()))
    assert page.code == 0
    assert "win rate by judge quality" in (tmp_path / "guard.html").read_text()


async def test_a_guard_keeps_a_share_whose_answers_are_as_good(world: World, understudy: CommandLine):
    world.server.opinion = wins(50)
    async with serving(2, constant) as (_, port):
        await world.begin_guard(port, "rollback")
        await world.hears(500)

        ended = await world.rollouts.tick()

    shown = await understudy.beside("rollout", "show", "visits", "--json")
    (row,) = [row for row in shown.json["decision"]["evidence"] if row["check"] == "judge"]
    assert (ended.record.state.phase, row["state"]) == (Phase.PROGRESSING, "pass")
    assert ended.policy is not None
    assert ended.policy.weight_percent == 10


async def test_a_guards_judge_that_is_down_takes_nothing_back_and_is_told_until_it_answers_again(
    world: World, understudy: CommandLine
):
    world.server.opinion = champion_wins
    async with serving(2, constant) as (_, port):
        await world.begin_guard(port, "rollback")
        await world.hears(200)
        world.judges, answering = (
            HttpJudges({"quality": f"http://127.0.0.1:{free_port()}"}, {}, timeout_seconds=5),
            world.judges,
        )
        await world.others_lead()
        await world.go_on(2)
        down = await world.rollouts.tick()
        shown = await understudy.beside("rollout", "show", "visits")
        doctor = await understudy.beside("doctor", "--json")
        world.judges = answering
        await world.others_lead()
        await world.go_on()

        ended = await world.rollouts.tick()

    assert (down.record.state.phase, down.policy and down.policy.weight_percent) == (Phase.PROGRESSING, 10)
    assert "✖ invalid" in shown.out
    (found,) = [one for one in doctor.document["findings"] if one["name"] == "judge visits 2"]
    assert found["state"] == "warning"
    assert found["what"].startswith("quality cannot be reached (")
    assert found["what"].endswith("; the guard judges by its other checks alone")
    assert ended.record.state.phase is Phase.FAILED
    assert "win rate by judge quality 0 % vs 100 %" in ended.record.state.reason


async def test_a_guards_judge_counts_while_the_champion_has_too_few_calls_for_a_threshold_of_slow_ones(world: World):
    world.server.opinion = champion_wins
    async with serving(2, constant) as (_, port):
        await world.begin_guard(port, "rollback", calls=180, min_judgements=50)
        await world.hears(60)

        ended = await world.rollouts.tick()

    assert ended.record.slow_us is None
    assert ended.record.state.phase is Phase.FAILED
    assert "win rate by judge quality 0 % vs 100 %" in ended.record.state.reason
    events = await world.rollouts.store.events(world.id)
    replays = [found for _, found in judged_again(events) if isinstance(found, Replay)]
    assert replays
    assert all(replay.agrees for replay in replays)
