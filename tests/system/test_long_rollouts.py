"""Rollouts of days: a monitor that has just started judges them, and what it stores never stands in its way."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest
from stats.worlds import Traffic, World
from worlds.rollout import TWINS, PastRollout

from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Phase
from understudy.core.routing.policy import Role
from understudy.core.windows.window import WINDOW_SECONDS, window_to_json
from understudy.rollout.verdicts.verdict_event import MAX_STORED_WINDOWS

pytestmark = [pytest.mark.timeout(240), pytest.mark.alone]
PLAN = RolloutPlan((Step(10, 864_000, 100), Step(100, 0, 0)), maximum_seconds=864_000)
FAILS = replace(TWINS, name="fails", error_factor=1e6)
TICKS = 8
"""More than a cold look takes on a busy machine."""
_ADD_WINDOWS = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch,
                                  calls, errors, counts)
    SELECT $1, to_timestamp($2::float8 + $3::int * place), $4, $5, $6, 'pod-' || pod, 0, $7, $8, $9
    FROM generate_series(0, $10::int - 1) AS place, generate_series(1, $11::int) AS pod
"""


async def under_way(rollout: PastRollout) -> None:
    """Begin a rollout and give it its first share."""
    await rollout.begin(PLAN)
    await tick(rollout)


async def tick(rollout: PastRollout) -> None:
    await rollout.executor.tick(epoch=None)  # type: ignore[arg-type]  # nobody else leads


async def ship(
    database: asyncpg.Connection, rollout: PastRollout, world: World, *, starts: int, pods: int = 1, percent: float = 10
) -> None:
    """Write one and the same window of both sides from now on again and again, and let its time pass."""
    began = rollout.store.now
    view = await rollout.store.view(rollout.id)
    assert view.policy is not None
    calls = replace(world, requests_per_minute=world.requests_per_minute / pods)
    for drawn in (window for window in Traffic(calls, 3).windows(0, 1, percent) if window.volume):
        window = replace(drawn, new_entities=0)  # the split of one window, so many times, would be no split by chance
        is_challenger = window.key.role is Role.CHALLENGER
        version_id = view.record.challenger_id if is_challenger else view.record.champion_id
        first = began // WINDOW_SECONDS * WINDOW_SECONDS + WINDOW_SECONDS
        key = (version_id, first, WINDOW_SECONDS, window.key.role, rollout.id, view.policy.generation)
        counted = (window.calls, window.errors, window_to_json(window), starts, pods)
        async with database.transaction():
            # They are whole: the trigger that looks at each row would take as long as all the rest.
            await database.execute("SET LOCAL session_replication_role = replica")
            await database.execute(_ADD_WINDOWS, *key, *counted)
    rollout.store.now = began + WINDOW_SECONDS * (starts + 1) + 10


@asynccontextmanager
async def longest_stall(most_seconds: float) -> AsyncIterator[None]:
    """Watch the event loop, which also renews the lease."""
    gaps = [0.0]

    async def watch() -> None:
        clock = asyncio.get_running_loop().time
        while True:
            asked = clock()
            await asyncio.sleep(0.02)
            gaps.append(clock() - asked - 0.02)

    watcher = asyncio.create_task(watch())
    yield
    watcher.cancel()
    assert max(gaps) < most_seconds


async def test_a_monitor_that_has_just_started_judges_a_hundred_thousand_windows(database, database_url):
    rollout = PastRollout(database, database_url, FAILS, 300_000)
    await under_way(rollout)
    await ship(database, rollout, FAILS, starts=4_200, pods=12)

    ticks = 0
    async with longest_stall(1.0):
        while (view := await rollout.store.view(rollout.id)).record.state.phase is Phase.PROGRESSING and ticks < TICKS:
            await tick(rollout)
            ticks += 1

    assert view.record.state.phase is Phase.FAILED
    assert await database.fetchval("SELECT count(*) FROM PredictionWindow") == 2 * 12 * 4_200


async def test_a_rollback_after_days_is_not_held_up_by_what_is_stored_of_it(database, database_url):
    rollout = PastRollout(database, database_url, TWINS, 600_000)
    await under_way(rollout)
    # Without calls of the challenger: after days in which it served well, a minute of failing would be no proof yet.
    await ship(database, rollout, TWINS, starts=8_000, percent=0)
    for _ in range(TICKS):
        await tick(rollout)
    before = await rollout.store.view(rollout.id)
    most_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    await ship(database, rollout, FAILS, starts=40)
    async with longest_stall(1.0):
        await tick(rollout)

    after = await rollout.store.view(rollout.id)
    assert (before.record.state.phase, after.record.state.phase) == (Phase.PROGRESSING, Phase.FAILED)
    assert after.policy is not None
    assert after.policy.weight_percent == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most_kib < 200 * 1_024
    inputs = (await rollout.store.events(rollout.id))[-1].inputs
    assert inputs["strata_windows"] > MAX_STORED_WINDOWS
    assert len(inputs["strata_sha256"]) == 64
    assert "strata" not in inputs
