"""P9: what a tick of the monitor costs with ten rollouts of 300 windows each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median
from urllib.parse import urlsplit

import asyncpg
from e2e.stack import sql
from worlds.monitor import (
    MODELS,
    WINDOWS,
    Installation,
    MetricTicks,
    an_installation,
    history,
    metric_ticks,
    rollout_ticks,
)

from loadtests.scene import Scene
from loadtests.section import Check, Effort, Findings, Section, Target
from understudy.adapters.migrations import upgrade

BAR_SECONDS = 0.2


def run(scene: Scene, effort: Effort) -> Findings:  # noqa: ARG001 - it takes as long as it takes
    """Measure the jobs in databases of their own, in this process."""
    first, later = asyncio.run(_rollouts(scene.postgres.url))
    asyncio.run(_drop(scene.postgres.url))
    ticks, judged = asyncio.run(_metrics(scene.postgres.url))
    asyncio.run(_drop(scene.postgres.url))
    world = f"{WINDOWS} windows of {MODELS} models"
    return Findings(
        targets=[
            Target("P9", f"rollouts, a tick over {world}", median(later), "s CPU", BAR_SECONDS),
            Target("P9", f"metrics, a minute of {world}", max(ticks.minute, ticks.again), "s CPU", BAR_SECONDS),
            Target("P9", "drift, a tick at the turn of an hour", median(ticks.hour), "s CPU", BAR_SECONDS),
        ],
        checks=[Check("every active version was judged", judged == 2 * MODELS, f"{judged} of {2 * MODELS}")],
        notes=[
            f"first tick after a start, which reads all windows: {first:.3f} s; slowest later one {max(later):.3f} s",
            f"drift's slowest tick {max(ticks.hour):.3f} s; ticks read sums, so the requests behind them do not count",
        ],
        detail={"rollouts_seconds": later, "metrics_seconds": [ticks.minute, ticks.again], "drift_seconds": ticks.hour},
    )


async def _rollouts(server_url: str) -> tuple[float, list[float]]:
    async with _installed(server_url) as installation:
        return await rollout_ticks(installation)


async def _metrics(server_url: str) -> tuple[MetricTicks, int]:
    async with _installed(server_url) as installation:
        await installation.ship(0, WINDOWS)
        await history(installation)
        ticks = await metric_ticks(installation)
        judged: int = await installation.database.fetchval(
            "SELECT count(*) FROM PredictionMetric WHERE metric_name = 'drift_state'"
        )
    return ticks, judged


@asynccontextmanager
async def _installed(server_url: str) -> AsyncIterator[Installation]:
    await sql(server_url, "CREATE DATABASE monitor_tick")
    url = urlsplit(server_url)._replace(path="/monitor_tick").geturl()
    await upgrade(url)
    database = await asyncpg.connect(url)
    try:
        async with an_installation(database, url) as installation:
            yield installation
    finally:
        database.terminate()


async def _drop(server_url: str) -> None:
    await sql(server_url, "DROP DATABASE monitor_tick WITH (FORCE)")


SECTION = Section("P9", "a tick of the monitor", run, left_out="the monitor's jobs run in the benchmark's own process")
