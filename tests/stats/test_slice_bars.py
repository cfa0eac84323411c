"""The bars of slices (statistics page), through the product's own tally and evaluator.

Short by default; :mod:`stats.pieces` says how the numbers of runs that the page names are made.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stats.kept_runs import kept
from stats.pieces import runs, say
from stats.simulated_rollouts import STEPS, roll_out
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, equal_categories, failing_category, slow_category

from understudy.core.canary.slices.failing_slices import UNIT_SECONDS, failing_slices
from understudy.core.canary.slices.slice_tally import SliceTally, slice_units
from understudy.core.prediction_log.call_slices import ROUTED, Slice
from understudy.core.routing.policy import Role
from understudy.core.windows.slices import SLICE_BUCKETS, SliceColumn, no_counts
from understudy.core.windows.window import MICRO, Window

pytestmark = pytest.mark.timeout(3_600)
RUNS = runs(4, full=20)
EQUAL_RUNS = runs(10, full=100)


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("make", [failing_category, slow_category])
def test_a_category_of_three_percent_that_is_worse_is_named_or_takes_the_version_back(make, volume):
    world = make(volume)

    found = [roll_out(world, seed) for seed in RUNS]

    hits = [one for one in found if one.rolled_back or one.named]
    others = sum(bool(set(one.named) - {"c0"}) for one in found)
    named = sum(bool(one.named) for one in found)
    minutes = np.median([one.minute for one in hits]) if hits else np.inf
    say(
        f"{world.name}, {volume}/min",
        f"{len(hits)} of {len(RUNS)} in {minutes:.0f} min (median), {named} by name; others {others}",
    )
    assert len(hits) == len(RUNS)
    assert others <= max(1, 0.05 * len(RUNS))


EQUAL: dict[str, dict[str, Any]] = {
    "equal": {},
    "heavy entities": {"entities": 1_000, "zipf": 1.1},
    "300 tenants, own levels, retries": {"entities": 300, "zipf": 0.8, "own_errors": 1.0, "retries": 2},
    "pods that wander by 20 %": {"pod_noise": 0.2},
    "a burst": {"incident_seconds": 120.0, "incident_error_rate": 0.3, "retries": 2},
    "twice the errors for all": {"error_factor": 2.0},
    "1.3 times the latency for all": {"latency_factor": 1.3},
}


@kept(list)
def named_slices_of(world: World, seed: int) -> list[str]:
    """Return the slices that are named in a rollout that takes each step in its time, whatever else is found."""
    traffic, tally = Traffic(world, seed), SliceTally(len(STEPS), 30.0)
    starts: list[float] = []
    named: set[str] = set()
    unit_windows = UNIT_SECONDS * PER_MINUTE // 60
    known = 0
    for number, step in enumerate(STEPS, 1):
        starts.append(known / PER_MINUTE * 60)
        for _ in range(int(step.dwell_minutes * PER_MINUTE) // unit_windows):
            windows = traffic.windows(known, unit_windows, step.weight_percent, number)
            known += unit_windows
            for unit in slice_units(windows, ROLLOUT):
                tally.add(unit, starts)
            named |= {found.counted.slice.value for found in failing_slices(tally.counts())}
    return sorted(named)


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("name", EQUAL)
def test_of_forty_equal_slices_one_is_hardly_ever_named(name, volume):
    world = equal_categories(volume, **EQUAL[name])

    false = sum(bool(named_slices_of(world, seed)) for seed in EQUAL_RUNS)

    say(f"40 equal slices, {name}, {volume}/min", f"a name in {false} of {len(EQUAL_RUNS)}")
    assert false <= 0.05 * len(EQUAL_RUNS)


ROUTE = Slice(ROUTED, "gold")
ROUTE_SHARE = 0.03
HELD_OUT = 0.1
"""Of the entities of a category that routes to the challenger."""


def with_route(
    windows: list[Window], seed: int, per_window: float, *, error_rate: float, factor: float, entities: int
) -> Iterator[Window]:
    """Yield windows with the calls of a category that routes to the challenger, a part of which is held out."""
    levels = np.random.default_rng([seed, 97])
    stays = levels.random(entities) < HELD_OUT
    own = np.exp(0.5 * levels.normal(size=entities)) / np.exp(0.125)
    random = np.random.default_rng([seed, 98, windows[0].key.start])
    for window in windows:
        is_challenger = window.key.role is Role.CHALLENGER
        entity = random.integers(0, entities, random.poisson(per_window))
        entity = entity[stays[entity] != is_challenger]
        chance = (error_rate if is_challenger else 0.005) * own[entity]
        failed = random.random(entity.size) < chance
        log_us = np.log(12_000 * (factor if is_challenger else 1)) + 0.5 * random.normal(size=entity.size)
        counted = no_counts()
        np.add.at(counted[:, SliceColumn.CALLS], entity % SLICE_BUCKETS, 1)
        np.add.at(counted[:, SliceColumn.ERRORS], entity % SLICE_BUCKETS, failed)
        np.add.at(counted[:, SliceColumn.LOG_LATENCY], entity % SLICE_BUCKETS, (log_us * MICRO).astype(int) * ~failed)
        yield replace(window, slices={ROUTE: counted} if entity.size else {})


def minute_of_route(volume: int, seed: int, *, error_rate: float = 0.005, factor: float = 1.0, entities: int) -> float:
    """Return the minute in which a routed category is named, on the default ladder; infinity for never."""
    traffic, tally = Traffic(World("plain", volume), seed), SliceTally(len(STEPS), 30.0)
    starts: list[float] = []
    unit_windows, known = UNIT_SECONDS * PER_MINUTE // 60, 0
    for number, step in enumerate(STEPS, 1):
        starts.append(known / PER_MINUTE * 60)
        for _ in range(int(step.dwell_minutes * PER_MINUTE) // unit_windows):
            windows = traffic.windows(known, unit_windows, step.weight_percent, number)
            per_window = ROUTE_SHARE * volume / PER_MINUTE
            routed = list(
                with_route(windows, seed, per_window, error_rate=error_rate, factor=factor, entities=entities)
            )
            known += unit_windows
            for unit in slice_units(routed, ROLLOUT):
                tally.add(unit, starts)
            if failing_slices(tally.counts()):
                return known / PER_MINUTE
    return np.inf


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize(("name", "unlike"), [("fails", {"error_rate": 10.0}), ("x5", {"factor": 5.0})])
def test_a_routed_category_that_is_worse_than_its_holdout_is_named(name, unlike, volume):
    minutes = [minute_of_route(volume, seed, entities=2_000, **unlike) for seed in RUNS]

    hits = sum(np.isfinite(minutes))
    say(f"a routed category of 3 %, a tenth held out, {name}, {volume}/min", f"{hits}, minute {np.median(minutes):.0f}")
    assert hits == len(RUNS)


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("entities", [100, 2_000])
def test_a_routed_category_that_is_equal_is_hardly_ever_named(entities, volume):
    false = sum(bool(np.isfinite(minute_of_route(volume, seed, entities=entities))) for seed in EQUAL_RUNS)

    say(f"an equal routed category, {entities:,} entities, {volume}/min", f"a name in {false} of {len(EQUAL_RUNS)}")
    assert false <= 0.05 * len(EQUAL_RUNS)


def with_made_up(windows: list[Window], numbers: range) -> list[Window]:
    """Return windows of which the first has a call of each of so many categories that callers made up."""
    one_call = no_counts()
    one_call[0] = (1, 0, 0, round(np.log(10_000) * MICRO))
    made_up = {Slice("category", f"a-{number}"): one_call for number in numbers}
    first = windows[0]
    return [replace(first, calls=first.calls + len(made_up), slices={**made_up, **first.slices}), *windows[1:]]


def minute_of_slow_category(volume: int, seed: int, *, made_up: int, again: bool) -> float:
    """Return the minute in which a slow category of 3 % is named, whatever else is found; infinity for never.

    Args:
        volume: Requests a minute.
        seed: Of the run.
        made_up: Categories that callers make up in the first two minutes.
        again: Whether they make up as many others in all later stretches.
    """
    traffic, tally = Traffic(slow_category(volume), seed), SliceTally(len(STEPS), 30.0)
    starts: list[float] = []
    unit_windows, known = UNIT_SECONDS * PER_MINUTE // 60, 0
    for number, step in enumerate(STEPS, 1):
        starts.append(known / PER_MINUTE * 60)
        for _ in range(int(step.dwell_minutes * PER_MINUTE) // unit_windows):
            windows = traffic.windows(known, unit_windows, step.weight_percent, number)
            if known == 0 or again:
                windows = with_made_up(windows, range(known * made_up, (known + 1) * made_up))
            known += unit_windows
            for unit in slice_units(windows, ROLLOUT):
                tally.add(unit, starts)
            if any(found.counted.slice.value == "c0" for found in failing_slices(tally.counts())):
                return known / PER_MINUTE
    return np.inf


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("again", [False, True])
def test_categories_that_callers_make_up_keep_no_slice_from_being_named(again, volume):
    alone = [minute_of_slow_category(volume, seed, made_up=0, again=False) for seed in RUNS]
    beside = [minute_of_slow_category(volume, seed, made_up=64, again=again) for seed in RUNS]

    how = "in each stretch" if again else "once"
    say(
        f"a category of 3 % x5 beside 64 made-up ones, {how}, {volume}/min",
        f"named in {sum(np.isfinite(beside))} of {len(RUNS)}, minute {np.median(beside):.0f}; "
        f"{sum(np.isfinite(alone))} alone, minute {np.median(alone):.0f}",
    )
    assert np.isfinite(beside).all()
    assert np.median(beside) <= np.median(alone) + 6
