"""A challenger whose mean score has moved: a person is asked once; over a real Postgres."""

from dataclasses import replace

import asyncpg
import pytest
from command import CommandLine
from worlds.rollout import TWINS, PastRollout

from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.core.canary.decision import Verdict
from understudy.core.canary.scores.score_agreement import Agreement
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase, WaitingFor
from understudy.rollout.verdicts.replay import Replay, judged_again
from understudy.rollout.warm_up.score_comparison import DIRECTLY, ScoreComparison, Through

pytestmark = pytest.mark.timeout(120)
PLAN = RolloutPlan((Step(10, 3_000, 1_000), Step(100, 0, 0)), canary_limits={"detectable_ratio": 3})
MOVED = replace(TWINS, name="half a deviation higher", score_shift=0.05)


class Scored(ScoreComparison):
    """Says of every two versions that they answer with scores, and compares none before the first share."""

    def __init__(self) -> None:
        super().__init__(MemoryPolicySource(), lambda _: None, (), None, None)  # type: ignore[arg-type,return-value]  # never called

    async def compare(
        self,
        model_name: str,
        champion: str,
        challenger: str,
        now: float,
        *,
        prefers_log: bool = False,
        through: Through = DIRECTLY,
    ) -> Agreement | None:
        return None

    async def are_scored(self, model_name: str, champion: str, challenger: str) -> bool:
        return True


async def a_rollout(database: asyncpg.Connection, database_url: str, plan: RolloutPlan = PLAN) -> PastRollout:
    world = PastRollout(database, database_url, MOVED, seconds_ago=4_000)
    world.scores = Scored()
    await world.begin(plan)
    return world


async def test_a_mean_score_that_has_moved_stops_a_rollout_until_a_person_expects_it(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine
):
    world = await a_rollout(database, database_url)
    for _ in range(12):
        await world.go_on(1)
        waits = await world.store.view(world.id)
        if waits.record.state.phase is Phase.WAITING:
            break
    shown = await understudy.beside("rollout", "show", "churn")
    mended = await understudy.beside("rollout", "resume", "churn", "--reason", "mended", "--yes")
    await world.go_on(2)
    waits_again = await world.store.view(world.id)
    expected = await understudy.beside(
        "rollout", "resume", "churn", "--expect-different-scores", "--reason", "it scores higher", "--yes"
    )
    await world.go_on(2)
    same_monitor = await world.store.view(world.id)
    world.starts_anew()
    await world.go_on(2)
    next_monitor = await world.store.view(world.id)
    again = [
        found.agrees
        for event, found in judged_again(await world.store.events(world.id))
        if isinstance(found, Replay) and event.verdict is Verdict.HOLD
    ]

    assert (waits.record.state.phase, waits.record.state.waiting_for) == (Phase.WAITING, WaitingFor.WARM_UP)
    assert waits.policy is not None
    assert waits.policy.weight_percent == 10
    assert waits.record.state.reason.startswith("version 7 stops at 10 %: its mean score is 0.3")
    assert waits.record.state.reason.endswith("the limit is 0.1")
    assert "→ if meant so: understudy rollout resume churn --expect-different-scores" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert (mended.code, expected.code) == (0, 0)
    assert waits_again.record.state.phase is Phase.WAITING
    assert same_monitor.record.state.phase is next_monitor.record.state.phase is Phase.PROGRESSING
    assert again == [True, True]
    exposed = world.telemetry.exposition()[0].decode()
    assert 'rollout_transitions_total{model="churn",reason="scores",to="WAITING"} 2.0' in exposed


async def test_a_plan_with_a_limit_of_its_own_for_the_mean_score_is_not_stopped(
    database: asyncpg.Connection, database_url: str
):
    limits = {"detectable_ratio": 3, "score_shift_limit": 3.0}
    world = await a_rollout(database, database_url, replace(PLAN, canary_limits=limits))

    await world.go_on(6)

    assert (await world.store.view(world.id)).record.state.phase is Phase.PROGRESSING


async def test_a_plan_that_expects_different_scores_is_not_stopped(database: asyncpg.Connection, database_url: str):
    world = await a_rollout(database, database_url, replace(PLAN, expect_different_scores=True))

    await world.go_on(6)

    assert (await world.store.view(world.id)).record.state.phase is Phase.PROGRESSING
