"""Ten models with open rollouts and 300 windows each: the world in which a tick of the monitor is measured."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import numpy as np
from stats.worlds import Traffic
from stats.worlds import World as TrafficWorld
from traffic.drift import HOUR_SECONDS, usual_baseline, weekly_hour, windows_of
from traffic.logged import SPOOL, StoreAsOf, lead, register

from understudy.adapters.memory.judges import MemoryJudges
from understudy.adapters.memory.metric_sources import MemoryMetricSources
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.model_servers.connect import PROTOCOLS, connect
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.canary.metric_samples import SAMPLE_SECONDS
from understudy.core.drift.baseline import Baselines, baselines_to_json
from understudy.core.drift.hours import KEPT_SECONDS, closed_until, hour_to_json
from understudy.core.drift.subject_window import PREDICTION
from understudy.core.rollout.guard_limits import GuardSettings
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Observation, WarmUpResult
from understudy.core.rollout.state_machine import next_step
from understudy.core.routing.policy import Role
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.monitoring.drift_job import DriftJob
from understudy.monitoring.metrics_job import MetricsJob
from understudy.ports.prediction_log.prediction_log import SpooledBatch
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.metric_sources import MetricAnswer
from understudy.ports.rollout.rollout_store import NewRollout, NewRolloutEvent
from understudy.rollout.checks.answer_pairs import AnswerPair, AnswerPairs, Drawn
from understudy.rollout.checks.judge_check import JudgeCheck
from understudy.rollout.checks.metric_check import MetricCheck
from understudy.rollout.checks.slice_check import TURNS, SliceCheck
from understudy.rollout.executor import TICK_SECONDS, RolloutExecutor
from understudy.rollout.warm_up.warm_up import WarmUpProbe
from worlds.rollout import PastStore

MODELS = 10
WINDOWS = 300
FURTHER = 40
"""Windows of the rollouts after those, for ticks that are measured while all goes on."""
PLAN = RolloutPlan((Step(10, 86_400, 100), Step(100, 0, 0)))
ACTOR = Actor("test", "test", "cost")
BASELINE = {"baseline": baselines_to_json(Baselines(usual_baseline(), {}))}
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


@asynccontextmanager
async def an_installation(
    database: asyncpg.Connection,
    database_url: str,
    models: int = MODELS,
    world: TrafficWorld | None = None,
    plan: RolloutPlan = PLAN,
) -> AsyncIterator[Installation]:
    """Begin the rollouts in an empty database; their windows are shipped by whoever measures."""
    now: float = await database.fetchval("SELECT extract(epoch FROM now())::float8")
    rollouts = PostgresRolloutStore(database_url, timeout_seconds=10)
    ids = [await _begun(database, rollouts, f"model-{number}", now, plan) for number in range(models)]
    world = world or TrafficWorld("usual", has_scores=True, has_histograms=True)
    windows = await asyncio.to_thread(Traffic(world, 1).windows, 0, WINDOWS + FURTHER, 10.0)
    store = PostgresPredictionStore(database_url, timeout_seconds=60)
    yield Installation(database_url, database, store, await lead(database_url), now, ids, windows)
    await store.close()


async def _begun(
    database: asyncpg.Connection, rollouts: PostgresRolloutStore, model: str, now: float, plan: RolloutPlan
) -> tuple[int, int, int]:
    """Return a rollout that got its first share so long ago that all windows are of it."""
    champion, challenger = [await register(database, model, version, BASELINE) for version in ("1", "2")]
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model, champion)
    record = await rollouts.start(NewRollout(model, "2", plan, "salt", 20_000), ACTOR)
    view = await rollouts.view(record.id)
    seen = Observation(now=now - (WINDOWS + 1) * WINDOW_SECONDS, policy=view.policy, warm_up=WarmUpResult(passed=True))
    assert await rollouts.apply(view, next_step(view.record.state, seen), NewRolloutEvent("test"))
    return record.id, champion, challenger


def an_executor(
    installation: Installation,
    store: PostgresRolloutStore | None = None,
    windows: PostgresWindowLog | None = None,
    *,
    tick_seconds: float = TICK_SECONDS,
    slices: SliceCheck | None = None,
    **options: Any,
) -> RolloutExecutor:
    url = installation.database_url
    return RolloutExecutor(
        store or PostgresRolloutStore(url, timeout_seconds=30),
        windows or PostgresWindowLog(url, timeout_seconds=30),
        lambda _rollout_id: (),
        WarmUpProbe(PostgresPolicySource(url, timeout_seconds=5), connect, PROTOCOLS),
        MemoryTelemetry(),
        slices=slices,
        environment="test",
        guard_seconds=30 * 86_400.0,
        tick_seconds=tick_seconds,
        **options,
    )


GUARDS = 50
DAY_WINDOWS = 86_400 // WINDOW_SECONDS
_USUAL = TrafficWorld("usual", requests_per_minute=333)
_SPLIT = "UPDATE ServingPolicy SET challenger_version = $2, challenger_weight = 10 WHERE model_name = $1"
_DATE_BACK = """
    UPDATE Rollout SET started_at = to_timestamp($2), slow_us = $3,
           state = state || jsonb_build_object('started_at', $2::float8, 'limit_from', $2::float8)
    WHERE id = $1
"""
_COPY_WINDOWS = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch,
                                  calls, errors, counts)
    SELECT CASE role WHEN 'champion' THEN $3::bigint ELSE $4::bigint END, window_start, role, $2, policy_generation,
           shipper, epoch, calls, errors, counts
    FROM PredictionWindow WHERE rollout_id = $1 AND window_start >= to_timestamp($5)
"""


class Guards:
    """Models with shares set by SQL some windows ago, all with the same windows."""

    def __init__(
        self,
        installation: Installation,
        count: int = GUARDS,
        windows: int = DAY_WINDOWS,
        world: TrafficWorld = _USUAL,
    ) -> None:
        self._installation = installation
        self._count, self._windows = count, windows
        self._traffic = Traffic(world, 2)
        self._written = 0
        self._ids: list[tuple[int, int, int]] = []
        self.began = int(installation.now // WINDOW_SECONDS - DAY_WINDOWS) * WINDOW_SECONDS

    @property
    def now(self) -> float:
        return float(self.began + self._written * WINDOW_SECONDS)

    async def open(self) -> None:
        """Set the shares, and ship the windows since."""
        database = self._installation.database
        for number in range(self._count):
            model = f"guarded-{number}"
            champion, challenger = [await register(database, model, version, BASELINE) for version in ("1", "2")]
            insert = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)"
            await database.execute(insert, model, champion)
            await database.execute(_SPLIT, model, challenger)
            guard = await database.fetchval("SELECT rollout_id FROM ServingPolicy WHERE model_name = $1", model)
            await database.execute(_DATE_BACK, guard, float(self.began), round(self._traffic.slow_us))
            self._ids.append((guard, champion, challenger))
        await self.ship(self._windows)

    async def ship(self, count: int) -> None:
        """Ship the next windows of all guards."""
        since = self.now
        windows = await asyncio.to_thread(self._traffic.windows, self._written, count, 10.0, 2)
        first, *others = self._ids
        for place in range(0, len(windows), 1_000):
            await self._installation.write(
                [_of_model(window, first, self.began) for window in windows[place : place + 1_000]]
            )
        self._written += count
        for ids in others:
            await self._installation.database.execute(_COPY_WINDOWS, first[0], *ids, since)


async def history(installation: Installation) -> None:
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


async def cpu_seconds(work: Callable[[], Awaitable[None]]) -> float:
    """Return the processor's time of this process, its threads included."""
    began = time.process_time()
    await work()
    return time.process_time() - began


async def rollout_ticks(installation: Installation) -> tuple[float, list[float]]:
    """Return the processor's seconds of the first tick over all windows but four, and of three ticks after each."""
    await installation.ship(0, WINDOWS - 4)
    executor = an_executor(installation)
    first = await cpu_seconds(partial(executor.tick, installation.epoch))
    later = []
    for place in range(WINDOWS - 4, WINDOWS):
        await installation.ship(place, 1)
        later += [await cpu_seconds(partial(executor.tick, installation.epoch)) for _ in range(3)]
    return first, later


class GuardTicks(NamedTuple):
    """The processor's seconds of ticks of ten rollouts and fifty guards that are a day old."""

    reading: float
    """Of the tick that reads all windows, as after a restart of the monitor."""
    all_analysed: list[float]
    """Of ticks in which each guard is analysed."""
    usual: list[float]
    """Of all the ticks in which each guard has been analysed once more."""


async def guard_ticks(installation: Installation) -> GuardTicks:
    """Measure five minutes of ticks, with new windows every quarter of a minute."""
    guards = Guards(installation)
    await guards.open()
    await installation.ship(0, WINDOWS)
    store = PastStore(installation.database_url, guards.now)
    usual, at_each_tick = an_executor(installation, store), an_executor(installation, store, tick_seconds=inf)
    await usual.tick(installation.epoch)  # in which the guards begin
    reading = await cpu_seconds(partial(usual.tick, installation.epoch))
    ticks: list[float] = []
    for number in range(60):
        if number % 3 == 0:
            await guards.ship(1)
            await installation.ship(WINDOWS + number // 3, 1)
        store.now = guards.now + 6 + 5 * (number % 3)
        ticks.append(await cpu_seconds(partial(usual.tick, installation.epoch)))
    del usual
    await at_each_tick.tick(installation.epoch)
    all_analysed = [await cpu_seconds(partial(at_each_tick.tick, installation.epoch)) for _ in range(3)]
    return GuardTicks(reading, all_analysed, ticks)


class SliceTicks(NamedTuple):
    """The processor's seconds of ticks of ten rollouts and fifty guards, with eight slices each."""

    usual: list[float]
    """Of the rollouts' own ticks, twelve a minute."""
    slices: list[float]
    """Of the job that adds slices up, as often."""


SLICED = TrafficWorld("sliced", has_scores=True, has_histograms=True, categories=(0.125,) * 8)


async def slice_ticks(installation: Installation, minutes: int = 4) -> SliceTicks:
    """Measure some minutes of ticks, an hour and a quarter after all of them began."""
    guards = Guards(installation, windows=WINDOWS, world=replace(SLICED, requests_per_minute=333))
    guards.began = installation.began
    await guards.open()
    await installation.ship(0, WINDOWS)
    store = PastStore(installation.database_url, guards.now)
    check = SliceCheck(store, PostgresWindowLog(installation.database_url, timeout_seconds=30))
    executor = an_executor(installation, store, slices=check)
    for _ in range(2):  # the guards begin, and all windows are read
        await executor.tick(installation.epoch)
    for _ in range(6 * TURNS):
        await check.tick(installation.epoch)
    ticks: list[float] = []
    slices: list[float] = []
    for number in range(12 * minutes):
        if number % 3 == 0:
            await guards.ship(1)
            await installation.ship(WINDOWS + number // 3, 1)
        store.now = guards.now + 6 + 5 * (number % 3)
        slices.append(await cpu_seconds(partial(check.tick, installation.epoch)))
        ticks.append(await cpu_seconds(partial(executor.tick, installation.epoch)))
    assert all(check.latest(rollout_id) is not None for rollout_id, _, _ in installation.rollouts)
    return SliceTicks(ticks, slices)


ASKED_METRICS = [
    {"name": name, "source": "prod", "promql": name + '{version="$version"}', "lower_is_better": True}
    for name in ("cost", "refunds")
]
ASKED_JUDGE = {"name": "quality", "calls_per_minute": 30}
ASKED = replace(PLAN, canary_limits={"metrics": ASKED_METRICS, "judge": ASKED_JUDGE})
JUDGEMENTS = 2_000
_ADD_JUDGEMENTS = """
    INSERT INTO JudgeQuestion (rollout_id, judge, pair, challenger_first, entity_bucket, cost_micros, asked_at, outcome,
                               answered_at, difference)
    SELECT $1, 'quality', md5(n::text), n % 2 = 0, n % 64, 0, to_timestamp($2 - 3600 + n), 'answered',
           to_timestamp($2 - 3600 + n), CASE WHEN n % 3 = 0 THEN 0 WHEN n % 3 = 1 THEN 1 ELSE -1 END
    FROM generate_series(1, $3) AS n
"""


class WanderingMetrics(MemoryMetricSources):
    """Answers every query with values that are a little different in each minute."""

    async def read(self, source: str, query: str, start: int, end: int) -> MetricAnswer:
        return MetricAnswer({at: 100.0 + at // SAMPLE_SECONDS % 7 for at in range(start, end + 1, SAMPLE_SECONDS)})


class FreshPairs(AnswerPairs):
    """Draws two pairs of answers that were never judged."""

    def __init__(self) -> None:
        self._drawn = 0

    async def draw(self, *_: object) -> Drawn:
        self._drawn += 2
        return Drawn([_a_pair(f"fresh-{self._drawn - place}") for place in range(2)])


def _a_pair(name: str) -> AnswerPair:
    return AnswerPair(name, str(uuid4()), 5, {"amount": 1.0}, {"score": 0.1}, {"score": 0.2})


class AskedTicks(NamedTuple):
    """The processor's seconds of ticks of ten rollouts and fifty guards, all judged by two metrics and a judge."""

    usual: list[float]
    metrics: list[float]
    """Of the job that asks for metrics, as often."""
    judges: list[float]


async def asked_ticks(installation: Installation, minutes: int = 4) -> AskedTicks:
    """Measure some minutes of ticks, an hour and a quarter after all of them began, with a judge that has said much."""
    guards = Guards(installation, windows=WINDOWS)
    guards.began = installation.began
    await guards.open()
    await installation.ship(0, WINDOWS)
    store = PastStore(installation.database_url, guards.now)
    for rollout_id, _, _ in installation.rollouts:
        await installation.database.execute(_ADD_JUDGEMENTS, rollout_id, installation.now, JUDGEMENTS)
    metrics = MetricCheck(store, WanderingMetrics({"prod": {}}), MemoryTelemetry())
    judges = JudgeCheck(store, MemoryJudges({"quality": lambda _: 0.0}), FreshPairs(), MemoryTelemetry())
    executor = an_executor(
        installation,
        store,
        metrics_of=metrics.latest,
        judgements_of=judges.latest,
        guard_settings=GuardSettings({"*": ASKED_METRICS}, {"*": ASKED_JUDGE}),
    )
    checks: Sequence[MetricCheck | JudgeCheck] = (metrics, judges)
    for _ in range(4):  # the guards begin, all windows are read, and metrics of a day before
        await executor.tick(installation.epoch)
        for check in checks:
            await check.tick(installation.epoch)
            await check.settle()
    spent: tuple[list[float], list[float], list[float]] = ([], [], [])
    for number in range(12 * minutes):
        if number % 3 == 0:
            await guards.ship(1)
            await installation.ship(WINDOWS + number // 3, 1)
        store.now = guards.now + 6 + 5 * (number % 3)
        for place, check in enumerate(checks, 1):
            spent[place].append(await cpu_seconds(partial(check.tick, installation.epoch)))
            await check.settle()
        spent[0].append(await cpu_seconds(partial(executor.tick, installation.epoch)))
    for rollout_id, _, _ in installation.rollouts:
        assert [len(one.times) > WINDOWS // 8 for one in metrics.latest(rollout_id)] == [True, True]
        assert judges.latest(rollout_id).answered > JUDGEMENTS
    return AskedTicks(*spent)


class MetricTicks(NamedTuple):
    """The processor's seconds: of a minute's measuring, of the same again, of a turn of the hour, of nothing to do."""

    minute: float
    again: float
    hour: list[float]
    idle: float


async def metric_ticks(installation: Installation) -> MetricTicks:
    """Measure what has been shipped, and judge the drift of hours that are there."""
    store = StoreAsOf(installation.database_url, timeout_seconds=30)
    windows = PostgresWindowLog(installation.database_url, timeout_seconds=30)
    metrics = MetricsJob(store, windows)
    drift = DriftJob(store, windows, MemoryTelemetry(), environment="test")
    store.now = installation.now
    minute = await cpu_seconds(partial(metrics.tick, installation.epoch))
    again = await cpu_seconds(partial(metrics.tick, installation.epoch))
    hour = [await cpu_seconds(partial(drift.tick, installation.epoch)) for _ in range(4 * MODELS)]
    idle = await cpu_seconds(partial(drift.tick, installation.epoch))
    return MetricTicks(minute, again, hour, idle)
