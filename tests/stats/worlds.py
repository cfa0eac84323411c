"""Simulated traffic: requests of entities, drawn one by one, in the product's windows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from failing.calls import with_failures
from numpy.typing import NDArray

from understudy.core.prediction_log.call_slices import Slice
from understudy.core.routing.policy import Role
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.caller_deadlines import are_hurried, given_time, least_deadline_us
from understudy.core.windows.histogram import GAMMA, Histogram, cell_of, cells_of
from understudy.core.windows.slices import SLICE_BUCKETS
from understudy.core.windows.tail import STEP_RATIO, tail_cells
from understudy.core.windows.window import WINDOW_SECONDS, BucketColumn, Window, WindowKey

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

ROLLOUT = 1
PER_MINUTE = 60 // WINDOW_SECONDS
BUDGET_RATIO = 0.4
"""The challenger's share of a call's deadline."""
TYPICAL_US = 10_000
"""The latency that a world's deadlines are multiples of."""


@dataclass(frozen=True)
class World:
    """How a model's traffic behaves; the fields after ``retries`` are what is wrong with the challenger."""

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
    day_wave: float = 0.0
    """Relative size of a wave in volume that a day is long."""
    pareto: float = 0.0
    """Exponent of the latency's tail, which is then Pareto's from 5 ms on."""
    retries: int = 0
    """How often a call that failed is made again, and fails again."""
    error_factor: float = 1.0
    latency_factor: float = 1.0
    tail_factor: float = 1.0
    slowest_tenth_factor: float = 1.0
    score_shift: float = 0.0
    onset_minute: float = 0.0
    incident_seconds: float = 0.0
    """How long an incident of the challenger's lasts: calls fail at a rate, and answers take longer."""
    incident_error_rate: float = 0.0
    incident_latency_factor: float = 1.0
    incident_minute: float | None = None
    """When it begins; ``None``, at any moment from the third minute of the first five hours on."""
    lost_ratio: float = 0.0
    """Share of the challenger's entities whose rows never arrive."""
    has_scores: bool = False
    score_spread: float = 1.0
    """Of the challenger's scores, beside the champion's; 0: all the same."""
    own_scores: bool = False
    """Whether each entity has one score, ever the same."""
    has_histograms: bool = False
    slowest_ratio: float = 0.0
    """Share of the challenger's calls, drawn anew, that take ``slowest_factor`` as long."""
    slowest_factor: float = 1.0
    slowest_hundredths_factor: float = 1.0
    """How much longer its slowest three in a hundred take."""
    deadlines: tuple[float, float] | None = None
    """Least and longest deadline of callers, in multiples of the typical latency."""
    deadline_ratio: float = 1.0
    """Share of the calls whose callers set one."""
    cold_factor: float = 1.0
    """How much longer the challenger's calls take at first, because its server's caches are empty."""
    warm_factor: float = 1.0
    """What of that stays."""
    shared_ratio: float = 0.0
    """Share of the challenger's errors that the champion, which stands in, has as well."""
    bad_calls_per_window: int = 0
    """Calls, each of another entity, that a caller sends the challenger and that fail on both versions."""
    warming_minutes: float = 10.0
    """In which what its calls take longer falls to 1/e: a twentieth is left after half an hour."""
    categories: tuple[float, ...] = ()
    """Shares of the calls; each has an error level and a latency of its own, on both versions."""
    category_factor: float = 1.0
    """How much longer the challenger's calls of the first category take."""
    category_fails: bool = False
    """Whether the challenger fails them all."""


def plain(requests_per_minute: float = 3_000.0) -> World:
    return World("plain", requests_per_minute)


def diurnal(requests_per_minute: float = 3_000.0) -> World:
    return World("diurnal load", requests_per_minute, day_wave=0.5)


def wandering_pods(requests_per_minute: float = 3_000.0, pod_noise: float = 0.03) -> World:
    return World(f"pods that wander by {100 * pod_noise:g} %", requests_per_minute, pod_noise=pod_noise)


def retrying_callers(requests_per_minute: float = 3_000.0) -> World:
    return World("callers that try thrice", requests_per_minute, retries=2)


def pareto_latency(requests_per_minute: float = 3_000.0) -> World:
    return World("Pareto latency", requests_per_minute, pareto=1.5)


def two_modes(requests_per_minute: float = 3_000.0) -> World:
    return World("two modes of latency", requests_per_minute, log_sigma=0.2, tail_ratio=0.3)


def slow_thousandths(requests_per_minute: float = 3_000.0) -> World:
    """Return a challenger of whose calls 1.5 % take 20 times as long: nine times the p99, 6 % on the p95."""
    return World("1.5 % of the calls x20", requests_per_minute, slowest_ratio=0.015, slowest_factor=20.0)


def slower_hundredths(requests_per_minute: float = 3_000.0) -> World:
    """Return a challenger whose slowest three answers in a hundred take three times as long."""
    return World("slowest 3 % x3", requests_per_minute, slowest_hundredths_factor=3.0)


def one_burst(requests_per_minute: float = 3_000.0) -> World:
    """Return equal versions, of which the challenger has two minutes with 30 % errors at any moment."""
    return World(
        "one two-minute burst of 30 % errors",
        requests_per_minute,
        pod_noise=0.03,
        day_wave=0.5,
        retries=2,
        incident_seconds=120,
        incident_error_rate=0.3,
    )


def incident(requests_per_minute: float, seconds: float, error_rate: float, minute: float | None = None) -> World:
    """Return equal versions, of which the challenger's calls fail for a while; with 1.0 that is a crash of its pods."""
    name = f"{seconds:g} s of {100 * error_rate:g} % errors"
    return World(
        name,
        requests_per_minute,
        incident_seconds=seconds,
        incident_error_rate=error_rate,
        incident_minute=minute,
    )


def hurried_callers(requests_per_minute: float = 3_000.0, deadline_ratio: float = 1.0) -> World:
    """Return equal versions whose callers give a call 1.0 to 2.5 times what it takes."""
    name = f"deadlines of {100 * deadline_ratio:g} % at 1 to 2.5 x the latency"
    return World(name, requests_per_minute, deadlines=(1.0, 2.5), deadline_ratio=deadline_ratio)


def callers_of_all_sorts(requests_per_minute: float = 3_000.0, *, pareto: float = 0.0, pod_noise: float = 0.0) -> World:
    """Return equal versions whose callers' deadlines are on both sides of what is long enough to judge a version by."""
    name = f"deadlines at 1 to 30 x the latency{' (Pareto)' if pareto else ''}, pods {100 * pod_noise:g} %"
    return World(name, requests_per_minute, deadlines=(1.0, 30.0), pareto=pareto, pod_noise=pod_noise)


def slow_under_deadlines(requests_per_minute: float, latency_factor: float) -> World:
    """Return a slower challenger whose callers' deadlines the champion's usual latency fits in, with its share."""
    name = f"latency x{latency_factor:g}, deadlines at 10 to 30 x"
    return World(name, requests_per_minute, deadlines=(10.0, 30.0), latency_factor=latency_factor)


def failing_under_deadlines(requests_per_minute: float, error_factor: float) -> World:
    """Return a challenger with more errors whose callers' deadlines are long enough to judge it by."""
    name = f"errors x{error_factor:g}, deadlines at 10 to 30 x"
    return World(name, requests_per_minute, deadlines=(10.0, 30.0), error_factor=error_factor)


def cold_server(requests_per_minute: float, cold_factor: float) -> World:
    """Return equal versions, of which the challenger's server gets warm in half an hour."""
    return World(f"cold server x{cold_factor:g}", requests_per_minute, cold_factor=cold_factor)


def cold_and_then_slow(requests_per_minute: float, cold_factor: float, warm_factor: float) -> World:
    """Return a slow challenger whose server is cold besides, and warm within ten minutes."""
    name = f"cold server x{cold_factor:g}, and then x{warm_factor:g}"
    return World(name, requests_per_minute, cold_factor=cold_factor, warm_factor=warm_factor, warming_minutes=3.0)


SMALL_CATEGORY = (0.03, *(0.97 / 7,) * 7)


def slow_category(requests_per_minute: float = 3_000.0, factor: float = 5.0) -> World:
    """Return a challenger whose calls of a category that 3 % of all calls have take longer."""
    name = f"a category of 3 % x{factor:g}"
    return World(name, requests_per_minute, categories=SMALL_CATEGORY, category_factor=factor)


def failing_category(requests_per_minute: float = 3_000.0) -> World:
    """Return a challenger that fails all calls of a category that 3 % of all calls have."""
    return World("a category of 3 % fails", requests_per_minute, categories=SMALL_CATEGORY, category_fails=True)


def equal_categories(requests_per_minute: float, number: int = 40, **unlike: Any) -> World:
    """Return equal versions, whose calls have so many categories; ``unlike`` is what else is so of the world."""
    return World(f"{number} equal categories", requests_per_minute, categories=(1 / number,) * number, **unlike)


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
        # Of a generator of its own, so that worlds without them are what they were.
        self._own_scores = np.random.default_rng([seed, 2]).normal(0.3, 0.1, count if world.own_scores else 0)
        self._lost = rng.random(count) < world.lost_ratio
        self._met = np.zeros(count, bool)
        self._met_challenger = np.zeros(count, bool)
        # Of generators of their own, so that worlds without them are what they were.
        self._sharing = np.random.default_rng([seed, 3])
        self._bad_buckets = np.random.default_rng([seed, 4]).integers(0, 64, world.bad_calls_per_window).tolist()
        self._pods = np.zeros(2)
        self._phase = rng.random(2) * 2 * np.pi
        # Of a generator of its own, so that worlds without categories are what they were.
        self._of_categories = np.random.default_rng([seed, 85])
        kinds = len(world.categories)
        level = np.exp(0.5 * self._of_categories.normal(size=kinds))
        self._category_errors = level / (level @ np.array(world.categories)) if kinds else np.ones(1)
        self._category_log_latency = 0.3 * self._of_categories.normal(size=kinds) if kinds else np.zeros(1)
        self.slow_us = self._slow_threshold()
        # Of a generator of its own, so that worlds without incidents are what they were.
        anywhere = float(np.random.default_rng([seed, 1]).uniform(2, 300))
        self.incident_at = 60 * (anywhere if world.incident_minute is None else world.incident_minute)

    def windows(self, first: int, count: int, weight_percent: float, generation: int = 1) -> list[Window]:
        """Return ``count`` windows of both sides from window number ``first`` on."""
        rng, world = self._random, self.world
        numbers = np.arange(first, first + count)
        window = np.repeat(np.arange(count), rng.poisson(self._volume(numbers)))
        entity = self.drawn_entities(len(window))
        challenger = self._route[entity] < weight_percent / 100
        affected = challenger & (numbers[window] >= world.onset_minute * PER_MINUTE)
        arrived = ~(challenger & self._lost[entity])
        window, entity, challenger, affected = window[arrived], entity[arrived], challenger[arrived], affected[arrived]

        category = self._drawn_categories(len(window))
        # The draw comes first, as before there were categories: the chance draws from the same generator.
        drawn = rng.random(len(window))
        errors = drawn < self._error_chance(numbers, window, entity, affected) * self._category_errors[category]
        if world.category_fails:
            errors |= affected & (category == 0)
        in_incident = np.zeros(len(window), bool)
        if world.incident_seconds:
            in_incident = challenger & self._inside_the_incident(numbers[window])
            errors |= in_incident & (rng.random(len(window)) < world.incident_error_rate)
        if world.retries:
            again = np.repeat(np.arange(len(window)), np.where(errors, 1 + world.retries, 1))
            window, entity, challenger = window[again], entity[again], challenger[again]
            affected, errors, in_incident = affected[again], errors[again], in_incident[again]
            category = category[again]
        log_us = self._log_latency(count, window, entity, challenger, affected)
        log_us += self._category_log_latency[category]
        log_us += np.log(world.category_factor) * (affected & (category == 0))
        log_us += np.log(world.incident_latency_factor) * in_incident
        if world.cold_factor > 1:
            excess = np.exp(-numbers[window] / PER_MINUTE / world.warming_minutes)
            cold = world.warm_factor + (world.cold_factor - world.warm_factor) * excess
            log_us += np.log(cold) * challenger
        scores = self._scores(entity, affected) if world.has_scores else None
        calls = _Calls(window, entity, challenger, errors, log_us, scores)
        if world.deadlines is None:
            counted = list(self._counted(calls, first, count, generation))
            if world.categories:
                counted = self._sliced(counted, calls, category, first)
            return with_failures(counted, self._bad_buckets) if self._bad_buckets else counted
        kept, hurried, expired = self._within_deadlines(calls, world.deadlines)
        left_out = calls.per_side(count, hurried.astype(np.float64)), kept.per_side(count, expired.astype(np.float64))
        windows = self._counted(kept, first, count, generation)
        return [
            replace(window, hurried_calls=int(hurried_calls), expired_calls=int(expired_calls))
            for window, hurried_calls, expired_calls in zip(
                windows, *(counts.T.ravel().tolist() for counts in left_out), strict=True
            )
        ]

    def _drawn_categories(self, calls: int) -> IntArray:
        if not self.world.categories:
            return np.zeros(calls, np.int64)
        return self._of_categories.choice(len(self.world.categories), calls, p=self.world.categories)

    def _sliced(self, windows: list[Window], calls: "_Calls", category: IntArray, first: int) -> list[Window]:
        """Return the windows with what proxies count of each category."""
        kinds, count = len(self.world.categories), len(windows) // 2
        answered = ~calls.errors
        threshold = np.log(np.where(calls.challenger, STEP_RATIO * self.slow_us, self.slow_us))
        cell = (calls.challenger * count + calls.window) * kinds + category
        place = cell * SLICE_BUCKETS + self._bucket[calls.entity] % SLICE_BUCKETS
        columns = (None, calls.errors, answered & (calls.log_us > threshold), answered * np.floor(calls.log_us * 1e6))
        size = 2 * count * kinds * SLICE_BUCKETS
        counted = np.stack([np.bincount(place, values, size) for values in columns], axis=1).astype(np.int64)
        found = counted.reshape(2, count, kinds, SLICE_BUCKETS, -1)
        is_called = found[..., 0].sum(axis=-1) > 0
        names = [Slice("category", f"c{number}") for number in range(kinds)]
        sliced = []
        for window in windows:
            side = int(window.key.role is Role.CHALLENGER)
            number = window.key.start // WINDOW_SECONDS - first
            called = np.flatnonzero(is_called[side, number]).tolist()
            sliced.append(replace(window, slices={names[one]: found[side, number, one] for one in called}))
        return sliced

    def _scores(self, entity: IntArray, affected: NDArray[np.bool_]) -> FloatArray:
        world = self.world
        scores = self._own_scores[entity] if world.own_scores else self._random.normal(0.3, 0.1, len(entity))
        if world.score_spread != 1:
            scores = np.where(affected, 0.3 + world.score_spread * (scores - 0.3), scores)
        return np.asarray(scores + world.score_shift * affected, np.float64)

    def _within_deadlines(
        self, calls: "_Calls", deadlines: tuple[float, float]
    ) -> tuple["_Calls", NDArray[np.bool_], NDArray[np.bool_]]:
        """Return what proxies judge of calls with deadlines, which are hurried, and which of the judged expired."""
        rng, number = self._random, len(calls.window)
        deadline_us = (TYPICAL_US * rng.uniform(*deadlines, number)).astype(np.int64)
        deadline_us[rng.random(number) >= self.world.deadline_ratio] = 0
        latency_us = np.exp(calls.log_us)
        allowed_us = deadline_us * np.where(calls.challenger, BUDGET_RATIO, 1.0)
        is_late = (deadline_us > 0) & (latency_us > allowed_us)
        least_us = least_deadline_us(round(self.slow_us), BUDGET_RATIO, is_compared=True)
        hurried = are_hurried(deadline_us, is_late, np.full(number, least_us))
        given = given_time(deadline_us, is_late, BUDGET_RATIO)
        if given is None:
            return calls, hurried, is_late
        compared = np.where(given.is_expired, given.compared_us, np.minimum(latency_us, given.compared_us))
        judged = calls._replace(errors=calls.errors & ~given.is_expired, log_us=np.log(compared))
        return judged.where(~hurried), hurried, given.is_expired[~hurried]

    def _inside_the_incident(self, numbers: IntArray) -> NDArray[np.bool_]:
        """Return which calls of the windows ``numbers`` are inside the incident, at a moment of its own each."""
        moment = (numbers + self._random.random(len(numbers))) * WINDOW_SECONDS - self.incident_at
        return (moment >= 0) & (moment < self.world.incident_seconds)

    def _volume(self, numbers: IntArray) -> FloatArray:
        wave = 1 + self.world.wave * np.sin(2 * np.pi * numbers / (360 * PER_MINUTE) + self._phase[0])
        if self.world.day_wave:
            wave = wave + self.world.day_wave * np.sin(2 * np.pi * numbers / (1_440 * PER_MINUTE) + self._phase[0])
        return np.asarray(self.world.requests_per_minute / PER_MINUTE * wave, np.float64)

    def drawn_entities(self, calls: int) -> IntArray:
        """Return who makes each of so many calls."""
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
        if world.pareto:
            log_us = np.log(5_000) + rng.exponential(1 / world.pareto, len(window))
        log_us += np.log(world.latency_factor) * affected
        log_us += np.log(world.slowest_tenth_factor) * (affected & (body > 1.2816))
        log_us += np.log(world.slowest_hundredths_factor) * (affected & (body > 1.8808))
        if world.slowest_ratio:
            log_us += np.log(world.slowest_factor) * (affected & (rng.random(len(window)) < world.slowest_ratio))
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
        entity = self.drawn_entities(20_000)
        none = np.zeros(20_000, bool)
        log_us = self._log_latency(1, np.zeros(20_000, np.int64), entity, none, none)
        log_us += self._category_log_latency[self._drawn_categories(20_000)]
        self._pods = np.zeros(2)
        return float(np.exp(np.quantile(log_us, 0.95)))

    def _counted(self, calls: "_Calls", first: int, count: int, generation: int) -> Iterator[Window]:
        cells = _cells(calls, self._bucket, self.slow_us, count)
        failing = calls.distinct(count, self.world.entities, calls.errors)
        own, shared = failing, {}
        if self.world.shared_ratio:
            is_shared = calls.errors & calls.challenger
            is_shared[is_shared] = self._sharing.random(np.count_nonzero(is_shared)) < self.world.shared_ratio
            own = calls.distinct(count, self.world.entities, calls.errors & ~is_shared)
            shared = _shared(calls.where(is_shared), self._bucket)
        in_rollout, in_role = self._new(calls, count)
        answered = ~calls.errors
        sums = {
            "entities": calls.distinct(count, self.world.entities, None),
            "error_entities": failing,
            "shared_error_entities": failing - own,
            "new_entities": in_rollout,
            "new_in_role": in_role,
            "log_latency_squares": calls.per_side(count, np.floor(calls.log_us**2 * 1e6) * answered).astype(np.int64),
        }
        if calls.scores is not None:
            squares = calls.per_side(count, np.round(calls.scores**2 * 1e6) * answered)
            sums["score_squares"] = squares.astype(np.int64)
        sums |= dict(zip(_BUCKET_SUMS, np.moveaxis(cells.sum(axis=2), -1, 0), strict=True))
        histograms = _histograms(calls, count) if self.world.has_histograms else {}
        score_cells = _score_histograms(calls, count) if self.world.has_histograms else {}
        tails = _tails(calls, self._bucket, self.slow_us, count)
        # By window and side, as plain numbers.
        rows = np.stack(list(sums.values()), axis=-1).swapaxes(0, 1).tolist()
        for number in range(count):
            start = (first + number) * WINDOW_SECONDS
            for side, role in enumerate((Role.CHAMPION, Role.CHALLENGER)):
                counted = dict(zip(sums, rows[number][side], strict=True))
                yield Window(
                    WindowKey("worker-1", 0, side, role, ROLLOUT, generation, start),
                    volume=counted["calls"],
                    shared_errors=shared.get((side, number), _NONE),
                    latencies=histograms.get((side, number), _NONE),
                    scores=score_cells.get((side, number), _NONE),
                    tails=tails.get((side, number), _NONE),
                    buckets=cells[side, number],
                    **counted,
                )

    def _new(self, calls: "_Calls", count: int) -> tuple[IntArray, IntArray]:
        """Return entities met for the first time: in the rollout, and by the challenger, each by side and window."""
        own = np.flatnonzero(calls.challenger)
        fresh = _first_calls(calls.entity, self._met)
        joined = own[_first_calls(calls.entity[own], self._met_challenger)]
        in_rollout, by_challenger = (
            np.bincount(calls.challenger[rows] * count + calls.window[rows], minlength=2 * count).reshape(2, count)
            for rows in (fresh, joined)
        )
        return in_rollout, np.stack([in_rollout[0], by_challenger[1]])


_NONE = Histogram()
_BUCKET_SUMS = tuple(column.name.lower() for column in BucketColumn)


def _first_calls(entity: IntArray, met: NDArray[np.bool_]) -> IntArray:
    """Return the first calls of entities that were not met before, and note that they were."""
    rows = np.flatnonzero(~met[entity])
    calls = max(len(entity), 1)
    found, place = np.divmod(np.sort(entity[rows] * calls + rows), calls)
    is_first = np.diff(found, prepend=-1) > 0
    met[found] = True
    first: IntArray = place[is_first]
    return first


class _Calls(NamedTuple):
    window: IntArray
    entity: IntArray
    challenger: NDArray[np.bool_]
    errors: NDArray[np.bool_]
    log_us: FloatArray
    scores: FloatArray | None

    def where(self, chosen: NDArray[np.bool_]) -> "_Calls":
        scores = None if self.scores is None else self.scores[chosen]
        window, entity, challenger = self.window[chosen], self.entity[chosen], self.challenger[chosen]
        return _Calls(window, entity, challenger, self.errors[chosen], self.log_us[chosen], scores)

    def per_side(self, count: int, values: FloatArray) -> FloatArray:
        sums = np.bincount(self.challenger * count + self.window, values, 2 * count)
        return np.asarray(sums, np.float64).reshape(2, count)

    def distinct(self, count: int, entities: int, chosen: NDArray[np.bool_] | None) -> IntArray:
        """Return how many entities made the chosen calls (``None``: all of them), by side and window."""
        pairs = (self.challenger * count + self.window) * entities + self.entity
        pairs = np.sort(pairs if chosen is None else pairs[chosen])  # a tenth of the time of np.unique
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]
        return np.bincount(pairs // entities, minlength=2 * count).reshape(2, count)


def _shared(calls: _Calls, bucket_of: IntArray) -> dict[tuple[int, int], Histogram]:
    """Return the buckets of calls, by side and window."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for place in zip(
        calls.challenger.astype(int).tolist(), calls.window.tolist(), bucket_of[calls.entity].tolist(), strict=True
    ):
        counts = found.setdefault(place[:2], {})
        counts[place[2]] = counts.get(place[2], 0) + 1
    return {place: Histogram(counts) for place, counts in found.items()}


def _cells(calls: _Calls, bucket_of: IntArray, slow_us: float, count: int) -> IntArray:
    """Return the buckets of all windows, shape (2, windows, 64, columns)."""
    answered = ~calls.errors
    place = (calls.challenger * count + calls.window) * ANALYSIS_BUCKETS + bucket_of[calls.entity]
    columns: dict[BucketColumn, FloatArray | NDArray[np.bool_] | None] = {
        BucketColumn.CALLS: None,
        BucketColumn.ERRORS: calls.errors,
        BucketColumn.SLOW_LOW: answered & (calls.log_us > np.log(slow_us)),
        BucketColumn.SLOW_HIGH: answered & (calls.log_us > np.log(1.2 * slow_us)),
        BucketColumn.LOG_LATENCY: answered * np.floor(calls.log_us * 1e6),
    }
    if calls.scores is not None:
        columns |= {BucketColumn.SCORE_CALLS: answered, BucketColumn.SCORE: answered * np.round(calls.scores * 1e6)}
    counted = np.zeros((2 * count * ANALYSIS_BUCKETS, len(BucketColumn)), np.int64)
    for column, values in columns.items():
        counted[:, column] = np.bincount(place, values, len(counted))
    return counted.reshape(2, count, ANALYSIS_BUCKETS, len(BucketColumn))


def _histograms(calls: _Calls, count: int) -> dict[tuple[int, int], Histogram]:
    """Return the latencies of each side and window, in the product's cells."""
    cells = np.floor(calls.log_us / np.log(GAMMA)).astype(np.int64) + cell_of(1.0)
    return _counted_by_window(calls.challenger * count + calls.window, cells, count)


_CELLS_BELOW_ZERO = 1_000_000


def _score_histograms(calls: _Calls, count: int) -> dict[tuple[int, int], Histogram]:
    """Return the scores of each side and window, in the product's cells."""
    if calls.scores is None:
        return {}
    # Cells of scores below 0 are negative.
    answered = calls.where(~calls.errors)
    cells = cells_of(np.asarray(answered.scores)) + _CELLS_BELOW_ZERO
    counted = _counted_by_window(answered.challenger * count + answered.window, cells, count)
    return {
        place: Histogram({cell - _CELLS_BELOW_ZERO: number for cell, number in held.counts.items()})
        for place, held in counted.items()
    }


def _tails(calls: _Calls, bucket_of: IntArray, slow_us: float, count: int) -> dict[tuple[int, int], Histogram]:
    """Return the answers of each side and window that are far beyond the threshold, in the product's cells."""
    slow = ~calls.errors & (calls.log_us > np.log(STEP_RATIO * slow_us))
    cells = tail_cells(bucket_of[calls.entity[slow]], np.exp(calls.log_us[slow]), slow_us)
    return _counted_by_window((calls.challenger * count + calls.window)[slow], cells, count)


def _counted_by_window(places: IntArray, cells: IntArray, count: int) -> dict[tuple[int, int], Histogram]:
    pairs, counts = np.unique((places << 32) + cells, return_counts=True)
    found: dict[tuple[int, int], dict[int, int]] = {}
    for pair, number in zip(pairs.tolist(), counts.tolist(), strict=True):
        found.setdefault(divmod(pair >> 32, count), {})[pair & 0xFFFF_FFFF] = number
    return {place: Histogram(held) for place, held in found.items()}
