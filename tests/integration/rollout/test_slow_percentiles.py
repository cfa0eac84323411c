"""The champion's hour before a rollout, read from Postgres: it says where the slowest answers begin."""

from dataclasses import replace

import asyncpg
import pytest
from worlds.rollout import TWINS, PastRollout

from understudy.core.canary.decision import Verdict
from understudy.core.rollout.state import Phase
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
SLOW_THOUSANDTHS = replace(TWINS, name="1.5 % of the calls x20", slowest_ratio=0.015, slowest_factor=20.0)


async def test_one_slow_call_in_a_hundred_is_rolled_back_by_what_the_champions_hour_says(database, database_url):
    rollout = await a_rollout(database, database_url, minutes_before=60)

    await rollout.go_on(12)

    view = await rollout.store.view(rollout.id)
    (event,) = [one for one in await rollout.store.events(rollout.id) if one.verdict is Verdict.ROLL_BACK]
    ((_, replay),) = judged_again([event])
    assert view.record.state.phase is Phase.FAILED
    assert "slowest " in event.reason
    assert event.inputs["stage"]["tail_steps"] == [2, 4]
    assert isinstance(replay, Replay)
    assert replay.agrees


async def test_without_that_hour_nothing_is_known_of_the_slowest(database, database_url):
    rollout = await a_rollout(database, database_url, minutes_before=0)

    await rollout.go_on(5)

    view = await rollout.store.view(rollout.id)
    assert view.record.state.phase is Phase.PROGRESSING


async def a_rollout(database: asyncpg.Connection, database_url: str, *, minutes_before: int) -> PastRollout:
    rollout = PastRollout(database, database_url, SLOW_THOUSANDTHS, 7_200)
    await rollout.begin()
    if minutes_before:
        await rollout.served_before(minutes_before)
    return rollout
