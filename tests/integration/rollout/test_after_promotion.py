"""The watch over a new champion, over a real database: what the old one left behind is its control.

Its verdict is stored with what it rests on, whether a rollout or an operator promoted the champion, and comes to the
same when it is judged again.
"""

from dataclasses import replace

import asyncpg
import pytest
from worlds.rollout import TWINS, PastRollout

from understudy.core.canary.decision import Verdict
from understudy.core.canary.post_promotion import LIMITS
from understudy.core.rollout.plan import RolloutPlan, Step, Strategy
from understudy.core.rollout.state import Phase
from understudy.core.windows.strata_codec import strata_from_text
from understudy.rollout.history import history_of
from understudy.rollout.status import RolloutStatus, evidence_of
from understudy.rollout.verdicts.replay import Replay, judged_again

BLUE_GREEN = RolloutPlan((Step(100, 0, 0),), Strategy.BLUE_GREEN, keep_warm_seconds=600)
DEAD = replace(TWINS, name="dead", error_factor=1e6)


async def at_the_end_of_the_watch(rollout: PastRollout, minutes_before: int) -> Phase:
    await rollout.begin(BLUE_GREEN)
    await rollout.served_before(minutes_before)
    await rollout.go_on(14)
    return (await rollout.store.view(rollout.id)).record.state.phase


@pytest.mark.timeout(120)
async def test_a_new_champion_of_a_blue_green_rollout_that_fails_everything_goes_back(database, database_url):
    dead = PastRollout(database, database_url, DEAD, 7_200)

    phase = await at_the_end_of_the_watch(dead, minutes_before=30)

    told = await database.fetchval(
        "SELECT count(*) FROM AlertOutbox WHERE dedup_key LIKE '%champion_regressed%' AND action = 'trigger'"
    )
    policy = await champion_of(database)
    assert (phase, policy, told) == (Phase.FAILED, "6", 1)
    await assert_that_its_verdict_comes_to_the_same_again(dead)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("guard", "phase"), [("rollback", Phase.FAILED), ("alert", Phase.WAITING)])
async def test_a_guards_verdict_on_a_champion_set_by_hand_is_stored_and_comes_to_the_same_again(
    database, database_url, guard, phase
):
    dead = PastRollout(database, database_url, DEAD, 7_200)
    await dead.begin_by_hand(f"champion_version = {{}}, guard = '{guard}'")
    await dead.served_before(minutes=30)

    await dead.go_on(4)

    assert (await dead.store.view(dead.id)).record.state.phase is phase
    await assert_that_its_verdict_comes_to_the_same_again(dead)


@pytest.mark.timeout(120)
async def test_a_new_champion_of_a_blue_green_rollout_that_serves_as_well_stays(database, database_url):
    alike = PastRollout(database, database_url, TWINS, 7_200)

    phase = await at_the_end_of_the_watch(alike, minutes_before=30)

    assert (phase, await champion_of(database)) == (Phase.SUCCEEDED, "7")


async def assert_that_its_verdict_comes_to_the_same_again(rollout: PastRollout) -> None:
    view, events = await rollout.store.view(rollout.id), await rollout.store.events(rollout.id)
    ((event, replay),) = [pair for pair in judged_again(events) if pair[1] is not None]
    assert isinstance(replay, Replay)
    assert (event.verdict, replay.decision.verdict, replay.agrees) == (Verdict.ROLL_BACK, Verdict.ROLL_BACK, True)
    assert event.thresholds == LIMITS.to_json()
    # It rests on what both versions did alone, at two times, which is no part of the history of a rollout.
    strata = strata_from_text(event.inputs["strata"])
    assert strata.champion["calls"].min() > 0
    assert strata.challenger["errors"].sum() == strata.challenger["calls"].sum() > 0
    assert not history_of(view, [], events).decisions
    rows = evidence_of(RolloutStatus(view, events, None))
    assert [row.check.name for row in rows if row.state == "fail"] == ["error_rate"]
    assert "sample_ratio" not in {row.check.name for row in rows}


async def champion_of(database: asyncpg.Connection) -> str:
    version: str = await database.fetchval(
        "SELECT version FROM ServingPolicy p JOIN ModelVersion v ON v.id = p.champion_version"
    )
    return version
