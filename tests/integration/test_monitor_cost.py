"""What a tick of the monitor costs: ten models with 300 windows each, and a thousand ticks on one heap (issue 3)."""

import asyncio
import gc
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import asyncpg
import numpy as np
import orjson
import pytest
from drift_traffic import HOUR_SECONDS, usual_baseline, weekly_hour, windows_of
from logged_traffic import SPOOL, StoreAsOf, lead, register
from stats.worlds import Traffic
from stats.worlds import World as TrafficWorld

from understudy.adapters.backends import connect
from understudy.adapters.memory_telemetry import MemoryTelemetry
from understudy.adapters.postgres_log import PostgresPredictionStore
from understudy.adapters.postgres_policy import PostgresPolicySource
from understudy.adapters.postgres_rollouts import PostgresRolloutStore
from understudy.adapters.postgres_windows import PostgresWindowLog
from understudy.core.baseline import Baselines, baselines_to_json
from understudy.core.drift_hours import KEPT_SECONDS, PREDICTION, closed_until, hour_to_json
from understudy.core.plan import RolloutPlan, Step
from understudy.core.policy import Role
from understudy.core.rollout import next_step
from understudy.core.rollout_state import Observation, WarmUpResult
from understudy.core.windows import WINDOW_SECONDS, Window
from understudy.monitoring.drift_job import DriftJob
from understudy.monitoring.metrics_job import MetricsJob
from understudy.ports import NewRollout, NewRolloutEvent, Origin, SpooledBatch
from understudy.rollout.executor import RolloutExecutor
from understudy.rollout.warm_up import WarmUpProbe

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]  # a processor's figures, for a machine that does nothing else
MODELS = 10
WINDOWS = 300
BAR_SECONDS = 0.2
TICKS = 1_000
PLAN = RolloutPlan((Step(10, 86_400, 100), Step(100, 0, 0)))
ORIGIN = Origin("test", "test", "cost")
BASELINE = {"baseline": baselines_to_json(Baselines(usual_baseline(), {}))}
INPUTS = 20
ROWS = 7_000
COPY_SUBJECTS = """
    INSERT INTO DriftHour SELECT model_version_id, name, hour_start, row_count, sums
    FROM DriftHour CROSS JOIN unnest($2::text[]) AS names (name) WHERE model_version_id = $1
"""
COPY_HOURS = """
    INSERT INTO DriftHour SELECT $1, subject, hour_start, row_count, sums FROM DriftHour WHERE model_version_id = $2
"""


@dataclass
class Installation:
    """Ten models, each with a champion and a challenger at 10 %."""

    database_url: str
    database: asyncpg.Connection
    store: PostgresPredictionStore
    epoch: int
    now: float
    rollouts: list[tuple[int, int, int]]
    """Of each model: the rollout's, the champion's and the challenger's id."""
    windows: list[Window]
    """Of one model, both sides."""
    end: int = 0

    async def write(self, windows: Sequence[Window]) -> None:
        batch = SpooledBatch(SPOOL, 1, self.end, self.end + 1, [])
        await self.store.write(batch, windows)
        self.end += 1

    async def ship(self, first: int, count: int) -> None:
        """Write the same windows for every model."""
        wanted = self.windows[2 * first : 2 * (first + count)]
        await self.write([_of_model(window, ids, self.began) for ids in self.rollouts for window in wanted])

    @property
    def began(self) -> int:
        return int(self.now // WINDOW_SECONDS - WINDOWS) * WINDOW_SECONDS


def _of_model(window: Window, ids: tuple[int, int, int], began: int) -> Window:
    rollout_id, champion, challenger = ids
    version_id = champion if window.key.role is Role.CHAMPION else challenger
    key = window.key._replace(model_version_id=version_id, rollout_id=rollout_id, start=began + window.key.start)
    return replace(window, key=key)


@pytest.fixture
async def installation(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Installation]:
    now: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    rollouts = PostgresRolloutStore(database_url, timeout_seconds=10)
    ids = [await _begun(database, rollouts, f"model-{number}", now) for number in range(MODELS)]
    world = TrafficWorld("usual", has_scores=True, has_histograms=True)
    windows = await asyncio.to_thread(Traffic(world, 1).windows, 0, WINDOWS, 10.0)
    store = PostgresPredictionStore(database_url, timeout_seconds=60)
    yield Installation(database_url, database, store, await lead(database_url), now, ids, windows)
    await store.close()


async def _begun(
    database: asyncpg.Connection, rollouts: PostgresRolloutStore, model: str, now: float
) -> tuple[int, int, int]:
    """Return a rollout that got its first share so long ago that all windows are of it."""
    champion, challenger = [await register(database, model, version, BASELINE) for version in ("1", "2")]
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model, champion)
    record = await rollouts.start(NewRollout(model, "2", PLAN, "salt", 20_000), ORIGIN)
    view = await rollouts.view(record.id)
    seen = Observation(now=now - (WINDOWS + 1) * WINDOW_SECONDS, policy=view.policy, warm_up=WarmUpResult(passed=True))
    assert await rollouts.apply(view, next_step(view.record.state, seen), NewRolloutEvent("test"))
    return record.id, champion, challenger


def an_executor(installation: Installation) -> RolloutExecutor:
    url = installation.database_url
    return RolloutExecutor(
        PostgresRolloutStore(url, timeout_seconds=30),
        PostgresWindowLog(url, timeout_seconds=30),
        lambda _rollout_id: None,
        WarmUpProbe(PostgresPolicySource(url, timeout_seconds=5), connect),
        MemoryTelemetry(),
        environment="test",
    )


async def cpu_seconds(work: Callable[[], Awaitable[None]]) -> float:
    """Return the processor's time of this process, its threads included."""
    began = time.process_time()
    await work()
    return time.process_time() - began


def said(text: str) -> None:
    sys.stdout.write(f"\n{text}")


async def test_a_tick_of_ten_rollouts_with_300_windows_takes_less_than_a_fifth_of_a_second(installation):
    await installation.ship(0, WINDOWS - 4)
    executor = an_executor(installation)
    first = await cpu_seconds(partial(executor.tick, installation.epoch))

    later = []
    for place in range(WINDOWS - 4, WINDOWS):
        await installation.ship(place, 1)
        later += [await cpu_seconds(partial(executor.tick, installation.epoch)) for _ in range(3)]

    said(f"rollouts: first tick {first:.3f} s, then median {median(later):.3f} s, most {max(later):.3f} s of processor")
    assert median(later) <= BAR_SECONDS


async def test_measuring_a_minute_and_the_turn_of_an_hour_take_less_than_a_fifth_of_a_second_a_tick(installation):
    await installation.ship(0, WINDOWS)
    await _history(installation)
    store = StoreAsOf(installation.database_url, timeout_seconds=30)
    windows = PostgresWindowLog(installation.database_url, timeout_seconds=30)
    metrics = MetricsJob(store, windows)
    drift = DriftJob(store, windows, MemoryTelemetry(), environment="test")
    store.now = installation.now

    minute = await cpu_seconds(partial(metrics.tick, installation.epoch))
    again = await cpu_seconds(partial(metrics.tick, installation.epoch))
    hour = [await cpu_seconds(partial(drift.tick, installation.epoch)) for _ in range(4 * MODELS)]
    idle = await cpu_seconds(partial(drift.tick, installation.epoch))

    judged = await installation.database.fetchval(
        "SELECT count(*) FROM PredictionMetric WHERE metric_name = 'drift_state'"
    )
    said(f"metrics: {minute:.3f} s, and {again:.3f} s again; ")
    said(f"drift: median {median(hour):.3f} s, most {max(hour):.3f} s, idle {idle:.3f} s of processor a tick")
    assert judged == 2 * MODELS
    assert max(minute, again, median(hour)) <= BAR_SECONDS


async def test_the_turn_of_an_hour_with_inputs_takes_less_than_a_fifth_of_a_second_a_tick(installation):
    baseline = usual_baseline()
    names = [f"x{number:02d}" for number in range(INPUTS)]
    metrics = {"baseline": baselines_to_json(Baselines(baseline, dict.fromkeys(names, baseline)))}
    _, champion, _ = installation.rollouts[0]
    await installation.database.execute(
        "UPDATE ModelVersion SET metrics = $2 WHERE id = $1", champion, orjson.dumps(metrics).decode()
    )
    await _history(installation)
    await installation.database.execute(COPY_SUBJECTS, champion, names)
    await _log_inputs(installation, champion, names)
    store = StoreAsOf(installation.database_url, timeout_seconds=30)
    store.now = installation.now
    windows = PostgresWindowLog(installation.database_url, timeout_seconds=30)
    drift = DriftJob(store, windows, MemoryTelemetry(), environment="test")

    ticks = [await cpu_seconds(partial(drift.tick, installation.epoch)) for _ in range(2 * MODELS + INPUTS + 5)]

    judged = await installation.database.fetchval(
        "SELECT count(*) FROM PredictionMetric WHERE metric_name LIKE 'drift_state/%'"
    )
    said(f"drift of {INPUTS} inputs: median {median(ticks):.3f} s, most {max(ticks):.3f} s of processor a tick")
    assert judged == INPUTS
    assert median(ticks) <= BAR_SECONDS


async def _log_inputs(installation: Installation, version_id: int, names: Sequence[str]) -> None:
    """Log more inputs than are looked at, all in the last closed hour."""
    values = np.random.default_rng(6).normal(0.32, 0.18, size=(ROWS, len(names))).tolist()
    start = closed_until(installation.now) - HOUR_SECONDS
    rows = [
        (
            version_id,
            f"user-{place % 997}",
            start + place % 3_600,
            orjson.dumps(dict(zip(names, row, strict=True))).decode(),
        )
        for place, row in enumerate(values)
    ]
    await installation.database.executemany(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,"
        " inputs) VALUES ($1, $2, '', '{}', 1, to_timestamp($3), $4::jsonb)",
        rows,
    )


async def _history(installation: Installation) -> None:
    """Give every version hours as far back as drift looks, the last one missing."""
    generator = np.random.default_rng(5)
    until = closed_until(installation.now) - HOUR_SECONDS
    count = int(KEPT_SECONDS / HOUR_SECONDS)
    hours = windows_of(weekly_hour(generator, hour) for hour in range(count))
    first_version = installation.rollouts[0][1]
    rows = [
        (first_version, PREDICTION, until - (count - place) * HOUR_SECONDS, sum(hour.bucket_rows), hour_to_json(hour))
        for place, hour in enumerate(hours)
    ]
    await installation.database.executemany(
        "INSERT INTO DriftHour VALUES ($1, $2, to_timestamp($3), $4, $5::jsonb)", rows
    )
    for _, champion, challenger in installation.rollouts:
        for version in {champion, challenger} - {first_version}:
            await installation.database.execute(COPY_HOURS, version, first_version)


async def test_memory_is_flat_over_a_thousand_ticks(installation):
    installation.rollouts, others = installation.rollouts[:1], installation.rollouts[1:]
    closed = [rollout_id for rollout_id, _, _ in others]
    await installation.database.execute("ALTER TABLE Rollout DISABLE TRIGGER rollout_guard")
    await installation.database.execute("UPDATE Rollout SET announced_at = now() WHERE id = ANY ($1)", closed)
    await installation.ship(0, WINDOWS)
    store = StoreAsOf(installation.database_url, timeout_seconds=30)
    windows = PostgresWindowLog(installation.database_url, timeout_seconds=30)
    metrics, drift = MetricsJob(store, windows), DriftJob(store, windows, MemoryTelemetry(), environment="test")
    executor = an_executor(installation)

    async def held_after(first: int, count: int) -> tuple[int, float]:
        """Return Python's blocks and the process' megabytes."""
        for number in range(first, first + count):
            store.now = installation.now + 5 * number
            await executor.tick(installation.epoch)
            await metrics.tick(installation.epoch)
            await drift.tick(installation.epoch)
        gc.collect()
        return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    steps = [await held_after(first, TICKS // 5) for first in range(0, TICKS, TICKS // 5)]

    said("memory each 200 ticks: " + ", ".join(f"{blocks:,} blocks {most:.1f} MB" for blocks, most in steps))
    (early_blocks, early_most), (late_blocks, late_most) = steps[1], steps[-1]
    assert late_blocks - early_blocks < 3_000
    assert late_most - early_most < 10
