"""The watch over a new champion, over a real database: what the old one left behind is its control."""

from dataclasses import replace

import asyncpg
import pytest
from rollout_world import TWINS, PastRollout

from understudy.core.rollout.plan import RolloutPlan, Step, Strategy
from understudy.core.rollout.state import Phase

BLUE_GREEN = RolloutPlan((Step(100, 0, 0),), Strategy.BLUE_GREEN, keep_warm_seconds=600)


async def at_the_end_of_the_watch(rollout: PastRollout, minutes_before: int) -> Phase:
    await rollout.begin(BLUE_GREEN)
    await rollout.served_before(minutes_before)
    await rollout.go_on(14)
    return (await rollout.store.view(rollout.id)).record.state.phase


@pytest.mark.timeout(120)
async def test_a_new_champion_of_a_blue_green_rollout_that_fails_everything_goes_back(database, database_url):
    dead = PastRollout(database, database_url, replace(TWINS, name="dead", error_factor=1e6), 7_200)

    phase = await at_the_end_of_the_watch(dead, minutes_before=30)

    told = await database.fetchval(
        "SELECT count(*) FROM AlertOutbox WHERE dedup_key LIKE '%champion_regressed%' AND action = 'trigger'"
    )
    policy = await champion_of(database)
    assert (phase, policy, told) == (Phase.FAILED, "6", 1)


@pytest.mark.timeout(120)
async def test_a_new_champion_of_a_blue_green_rollout_that_serves_as_well_stays(database, database_url):
    alike = PastRollout(database, database_url, TWINS, 7_200)

    phase = await at_the_end_of_the_watch(alike, minutes_before=30)

    assert (phase, await champion_of(database)) == (Phase.SUCCEEDED, "7")


async def champion_of(database: asyncpg.Connection) -> str:
    version: str = await database.fetchval(
        "SELECT version FROM ServingPolicy p JOIN ModelVersion v ON v.id = p.champion_version"
    )
    return version
