"""Simulated traffic: requests of entities, drawn one by one, in the product's windows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.routing.policy import Role
from understudy.core.statistics.sequential_evidence import RESTART_SECONDS
from understudy.core.windows.histogram import GAMMA, Histogram, cell_of
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.window import ANALYSIS_BUCKETS, WINDOW_SECONDS, BucketColumn, Window, WindowKey

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ROLLOUT = 1
PER_MINUTE = 60 // WINDOW_SECONDS
BLOCK_WINDOWS = 15 * PER_MINUTE
LOOK_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """How a model's traffic behaves; the fields after ``zipf`` are what is wrong with the challenger."""

    name: str
    requests_per_minute: float = 3_000.0
    error_rate: float = 0.005
    log_sigma: float = 0.5
    """Of the latency, which is lognormal around 10 ms."""
    tail_ratio: float = 0.0
    """Share of requests that take five times as long."""
    pod_noise: float = 0.0
    """Standard deviation of each side's common latency factor, which wanders for about five minutes."""
    wave: float = 0.0
    """Relative size of a six-hour wave in volume, and of another one in errors."""
    bursts_per_hour: float = 0.0
    """Half a minute with ten times the errors on both sides."""
    entities: int = 200_000
    own_errors: float = 0.0
    """Spread (of the logarithm) of the entities' own error levels; half of it of their own latencies."""
    zipf: float = 0.0
    error_factor: float = 1.0
    latency_factor: float = 1.0
    tail_factor: float = 1.0
    slowest_tenth_factor: float = 1.0
    score_shift: float = 0.0
    onset_minute: float = 0.0
    lost_ratio: float = 0.0
    """Share of the challenger's entities whose rows never arrive."""
    has_scores: bool = False
    has_histograms: bool = False


class Traffic:
    """One run of a world."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._random = rng = np.random.default_rng(seed)
        count = world.entities
        popularity = 1 / np.arange(1, count + 1) ** world.zipf
        self._cumulated = np.cumsum(popularity) / popularity.sum() if world.zipf else None
        self._route = rng.random(count)
        self._bucket = rng.integers(0, ANALYSIS_BUCKETS, count)
        own = rng.normal(0, 1, count) if world.own_errors else np.zeros(count)
        # Divided by the mean of a lognormal, so that the world's error rate stays what it says.
        self._own_errors = np.exp(world.own_errors * own - world.own_errors**2 / 2)
        self._own_log_latency = world.own_errors / 2 * (rng.normal(0, 1, count) if world.own_errors else own)
        self._lost = rng.random(count) < world.lost_ratio
        self._met = np.zeros(count, bool)
        self._met_challenger = np.zeros(count, bool)
        self._pods = np.zeros(2)
        self._phase = rng.random(2) * 2 * np.pi
        self.slow_us = self._slow_threshold()

    def windows(self, first: int, count: int, weight_percent: float, generation: int = 1) -> list[Window]:
        """Return ``count`` windows of both sides from window number ``first`` on."""
        rng, world = self._random, self.world
        numbers = np.arange(first, first + count)
        window = np.repeat(np.arange(count), rng.poisson(self._volume(numbers)))
        entity = self._entities(len(window))
        challenger = self._route[entity] < weight_percent / 100
        affected = challenger & (numbers[window] >= world.onset_minute * PER_MINUTE)
        arrived = ~(challenger & self._lost[entity])
        window, entity, challenger, affected = window[arrived], entity[arrived], challenger[arrived], affected[arrived]

        errors = rng.random(len(window)) < self._error_chance(numbers, window, entity, affected)
        log_us = self._log_latency(count, window, entity, challenger, affected)
        scores = rng.normal(0.3, 0.1, len(window)) + world.score_shift * affected if world.has_scores else None
        calls = _Calls(window, entity, challenger, errors, log_us, scores)
        return list(self._counted(calls, first, count, generation))

    def _volume(self, numbers: IntArray) -> FloatArray:
        wave = 1 + self.world.wave * np.sin(2 * np.pi * numbers / (360 * PER_MINUTE) + self._phase[0])
        return np.asarray(self.world.requests_per_minute / PER_MINUTE * wave, np.float64)

    def _entities(self, calls: int) -> IntArray:
        if self._cumulated is None:
            return self._random.integers(0, self.world.entities, calls)
        found: IntArray = np.searchsorted(self._cumulated, self._random.random(calls))
        return found.clip(0, self.world.entities - 1)

    def _error_chance(
        self, numbers: IntArray, window: IntArray, entity: IntArray, affected: NDArray[np.bool_]
    ) -> FloatArray:
        world = self.world
        level = world.error_rate * (1 + world.wave * np.sin(2 * np.pi * numbers / (240 * PER_MINUTE) + self._phase[1]))
        starts = self._random.random(len(numbers)) < world.bursts_per_hour / 60 / PER_MINUTE
        level = np.where(starts | np.roll(starts, 1), 10 * level, level)
        chance: FloatArray = level[window] * self._own_errors[entity] * np.where(affected, world.error_factor, 1.0)
        return chance

    def _log_latency(
        self,
        count: int,
        window: IntArray,
        entity: IntArray,
        challenger: NDArray[np.bool_],
        affected: NDArray[np.bool_],
    ) -> FloatArray:
        world, rng = self.world, self._random
        body = rng.normal(0, 1, len(window))
        log_us = np.log(10_000) + world.log_sigma * body + self._own_log_latency[entity]
        log_us += np.log(world.latency_factor) * affected
        log_us += np.log(world.slowest_tenth_factor) * (affected & (body > 1.2816))
        tail = rng.random(len(window)) < world.tail_ratio * np.where(affected, world.tail_factor, 1.0)
        log_us += np.log(5) * tail
        return np.asarray(log_us + self._pod_path(count)[window, challenger.astype(np.int64)], np.float64)

    def _pod_path(self, count: int) -> FloatArray:
        path = np.zeros((count, 2))
        if not self.world.pod_noise:
            return path
        memory = np.exp(-1 / (5 * PER_MINUTE))
        shocks = self._random.normal(0, self.world.pod_noise * np.sqrt(1 - memory**2), (count, 2))
        for number in range(count):
            self._pods = path[number] = memory * self._pods + shocks[number]
        return path

    def _slow_threshold(self) -> float:
        """Return the champion's 95th percentile in microseconds, as seen in 20,000 requests before the rollout."""
        entity = self._entities(20_000)
        none = np.zeros(20_000, bool)
        log_us = self._log_latency(1, np.zeros(20_000, np.int64), entity, none, none)
        self._pods = np.zeros(2)
        return float(np.exp(np.quantile(log_us, 0.95)))

    def _counted(self, calls: "_Calls", first: int, count: int, generation: int) -> Iterator[Window]:
        cells = _cells(calls, self._bucket, self.slow_us, count)
        entities = calls.distinct(count, self.world.entities, np.ones(len(calls.window), bool))
        failing = calls.distinct(count, self.world.entities, calls.errors)
        new = self._new(calls, count)
        log_us = np.floor(calls.log_us * 1e6)
        squares = calls.per_side(count, np.floor(calls.log_us**2 * 1e6) * ~calls.errors)
        scores = np.zeros(len(log_us)) if calls.scores is None else calls.scores
        score_squares = calls.per_side(count, np.round(scores**2 * 1e6) * ~calls.errors)
        histograms = _histograms(calls, count) if self.world.has_histograms else {}
        for number in range(count):
            for side, role in enumerate((Role.CHAMPION, Role.CHALLENGER)):
                buckets = cells[side, number]
                sums = dict(zip(BucketColumn, buckets.sum(axis=0).tolist(), strict=True))
                yield Window(
                    WindowKey("worker-1", 0, side, role, ROLLOUT, generation, (first + number) * WINDOW_SECONDS),
                    volume=sums[BucketColumn.CALLS],
                    entities=int(entities[side, number]),
                    error_entities=int(failing[side, number]),
                    new_entities=int(new[0][side, number]),
                    new_in_role=int(new[1][side, number]),
                    log_latency_squares=int(squares[side, number]),
                    score_squares=int(score_squares[side, number]),
                    latencies=histograms.get((side, number), Histogram()),
                    buckets=buckets,
                    **{column.name.lower(): value for column, value in sums.items()},
                )

    def _new(self, calls: "_Calls", count: int) -> tuple[IntArray, IntArray]:
        """Return entities met for the first time: in the rollout, and by the challenger, each by side and window."""
        found, where = np.unique(calls.entity, return_index=True)
        fresh = where[~self._met[found]]
        self._met[found] = True
        own = np.flatnonzero(calls.challenger)
        found, where = np.unique(calls.entity[own], return_index=True)
        joined = own[where[~self._met_challenger[found]]]
        self._met_challenger[found] = True
        in_rollout, by_challenger = (
            np.bincount(calls.challenger[rows] * count + calls.window[rows], minlength=2 * count).reshape(2, count)
            for rows in (fresh, joined)
        )
        return in_rollout, np.stack([in_rollout[0], by_challenger[1]])


class _Calls(NamedTuple):
    window: IntArray
    entity: IntArray
    challenger: NDArray[np.bool_]
    errors: NDArray[np.bool_]
    log_us: FloatArray
    scores: FloatArray | None

    def per_side(self, count: int, values: FloatArray) -> FloatArray:
        sums = np.bincount(self.challenger * count + self.window, values, 2 * count)
        return np.asarray(sums, np.float64).reshape(2, count)

    def distinct(self, count: int, entities: int, chosen: NDArray[np.bool_]) -> IntArray:
        pairs = np.unique((self.challenger * count + self.window)[chosen] * entities + self.entity[chosen])
        return np.bincount(pairs // entities, minlength=2 * count).reshape(2, count)


def _cells(calls: _Calls, bucket_of: IntArray, slow_us: float, count: int) -> IntArray:
    """Return the buckets of all windows, shape (2, windows, 64, columns)."""
    answered = ~calls.errors
    place = (calls.challenger * count + calls.window) * ANALYSIS_BUCKETS + bucket_of[calls.entity]
    scores = np.zeros(len(place)) if calls.scores is None else calls.scores
    columns = {
        BucketColumn.CALLS: None,
        BucketColumn.ERRORS: calls.errors,
        BucketColumn.SLOW_LOW: answered & (calls.log_us > np.log(slow_us)),
        BucketColumn.SLOW_HIGH: answered & (calls.log_us > np.log(1.2 * slow_us)),
        BucketColumn.LOG_LATENCY: answered * np.floor(calls.log_us * 1e6),
        BucketColumn.SCORE_CALLS: answered & (calls.scores is not None),
        BucketColumn.SCORE: answered * np.round(scores * 1e6),
    }
    cells = 2 * count * ANALYSIS_BUCKETS
    counted = [np.bincount(place, values, cells) for values in columns.values()]
    return np.stack(counted, axis=1).astype(np.int64).reshape(2, count, ANALYSIS_BUCKETS, len(BucketColumn))


def _histograms(calls: _Calls, count: int) -> dict[tuple[int, int], Histogram]:
    """Return the latencies of each side and window, in the product's cells."""
    cells = np.floor(calls.log_us / np.log(GAMMA)).astype(np.int64) + cell_of(1.0)
    pairs, counts = np.unique(((calls.challenger * count + calls.window) << 32) + cells, return_counts=True)
    found: dict[tuple[int, int], dict[int, int]] = {}
    for pair, number in zip(pairs.tolist(), counts.tolist(), strict=True):
        found.setdefault(divmod(pair >> 32, count), {})[pair & 0xFFFF_FFFF] = number
    return {place: Histogram(held) for place, held in found.items()}


class Step(NamedTuple):
    weight_percent: float
    dwell_minutes: float


STEPS = (Step(2, 30), Step(5, 30), Step(10, 60), Step(25, 60), Step(50, 120))
"""The default plan's, without the last one, which is the promotion."""


class Outcome(NamedTuple):
    """How a rollout ended; ``decision`` is the last one."""

    decision: Decision
    minute: float
    challenger_requests: int
    step: int
    finished: bool

    @property
    def rolled_back(self) -> bool:
        return self.decision.verdict is Verdict.ROLL_BACK


def roll_out(
    world: World,
    seed: int,
    *,
    policy: CanaryPolicy | None = None,
    steps: tuple[Step, ...] = STEPS,
    minutes: float = 480,
    look_seconds: float = LOOK_SECONDS,
    is_pushed: bool = False,
) -> Outcome:
    """Run a whole rollout, a look at every ``look_seconds``, until it is rolled back, has finished or time is over.

    With ``is_pushed`` an operator starts the next stage when a stage's time is over, whatever holds it.
    """
    traffic = Traffic(world, seed)
    policy = policy or CanaryPolicy()
    starts: list[float] = [0.0]
    strata = stratify([], ROLLOUT)
    known = 0
    now = 0.0
    while True:
        now += look_seconds
        step = steps[len(starts) - 1]
        if now > known * WINDOW_SECONDS:
            more = traffic.windows(known, BLOCK_WINDOWS, step.weight_percent, len(starts))
            strata = join_strata([strata, stratify(more, ROLLOUT)])
            known += BLOCK_WINDOWS
        weights = {number: step.weight_percent for number, step in enumerate(steps, 1)}
        stage = Stage(
            "fraud",
            "42",
            ROLLOUT,
            tuple(starts),
            len(steps),
            step.weight_percent,
            weights,
            restart_seconds=RESTART_SECONDS,
        )
        decision = judge(strata, replace(policy, dwell_seconds=60 * step.dwell_minutes), stage, now)
        is_over = is_pushed and now - starts[-1] >= 60 * step.dwell_minutes and decision.verdict is Verdict.HOLD
        goes_on = is_over or decision.verdict is Verdict.ADVANCE
        is_last = len(starts) == len(steps)
        ended = decision.verdict in (Verdict.ROLL_BACK, Verdict.INVALID)
        if ended or now >= 60 * minutes or (is_last and goes_on):
            # A challenger that fails from its first calls on is judged by its open window too, which is all there here.
            requests = max(strata.until(now).challenger["calls"].sum(), decision.evidence[0].challenger_requests)
            return Outcome(decision, now / 60, int(requests), len(starts), is_last and goes_on)
        if goes_on:
            starts.append(now)
            strata, known = strata.until(now), int(now // WINDOW_SECONDS)
