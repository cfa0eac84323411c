"""Guards that are calm have turns: few analyses while all is well, and the version that breaks goes back in time."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from math import inf

import asyncpg
import pytest
from stats.worlds import PER_MINUTE, plain
from worlds.monitor import Guards, Installation, an_executor, an_installation
from worlds.rollout import PastStore

from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.windows.window import Window
from understudy.ports.monitoring.window_log import LatestWindows

pytestmark = pytest.mark.timeout(120)
COUNT = 8
CALM_MINUTES = 31
ONSET_MINUTE = 34
IN_SHARES = "SELECT count(*) FROM ServingPolicy WHERE model_name LIKE 'guarded-%' AND challenger_weight > 0"
END = """
    SELECT r.phase, e.reason, e.verdict FROM Rollout r JOIN RolloutEvent e ON e.rollout_id = r.id
    WHERE r.model_name LIKE 'guarded-%' AND e.verdict IS NOT NULL
"""


class CountingLog(PostgresWindowLog):
    """The log, which also tells of which rollouts all windows were asked for, and the last ones alone."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url, timeout_seconds=10)
        self.analysed, self.glanced = Counter[int](), Counter[int]()

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        self.analysed[rollout_id] += 1
        return await super().latest_of_rollout(rollout_id, since, settled)

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = inf) -> Sequence[Window]:
        self.glanced[rollout_id] += until == inf
        return await super().of_rollout(rollout_id, since, until)


@pytest.fixture
async def installation(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Installation]:
    async with an_installation(database, database_url, models=0) as made:
        yield made


async def test_a_version_that_breaks_under_a_calm_guard_goes_back_within_minutes_though_ticks_glance(installation):
    world = replace(plain(333), error_factor=1e6, onset_minute=ONSET_MINUTE)
    guards = Guards(installation, COUNT, CALM_MINUTES * PER_MINUTE, world)
    await guards.open()
    store, log = PastStore(installation.database_url, guards.now), CountingLog(installation.database_url)
    executor = an_executor(installation, store, log)

    async def a_quarter_minute() -> None:
        await guards.ship(1)
        for seconds in (6, 11, 16):
            store.now = guards.now + seconds
            await executor.tick(installation.epoch)

    for _ in range(2):
        await a_quarter_minute()
    log.analysed.clear()
    log.glanced.clear()
    while guards.now < guards.began + 60 * ONSET_MINUTE:
        await a_quarter_minute()
    calm_ticks, analysed, glanced = 3 * 10, log.analysed.copy(), log.glanced.copy()
    while await installation.database.fetchval(IN_SHARES) and guards.now < guards.began + 60 * (ONSET_MINUTE + 8):
        await a_quarter_minute()

    ends = await installation.database.fetch(END)
    assert guards.now - guards.began - 60 * ONSET_MINUTE <= 300
    assert [tuple(end)[::2] for end in ends] == [("FAILED", "ROLL_BACK")] * COUNT
    assert all("error rate" in end["reason"] for end in ends)
    assert analysed.total() <= 2 * calm_ticks
    assert min((analysed + glanced).values()) >= calm_ticks // 6
