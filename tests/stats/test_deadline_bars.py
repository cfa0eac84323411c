"""Callers' deadlines: none of them takes an equal version back, and what is slow or fails under them is found.

Short by default; ``UNDERSTUDY_STATS=full`` makes 40 runs of each at each volume, or a piece (:mod:`stats.pieces`).
"""

from collections.abc import Callable
from statistics import median

import pytest
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import Outcome, roll_out
from stats.worlds import (
    World,
    callers_of_all_sorts,
    failing_under_deadlines,
    hurried_callers,
    slow_under_deadlines,
)

from understudy.core.canary.decision import Verdict

RUNS = runs(1, full=40)
VOLUMES = (333, 3_000) if IS_FULL else (3_000,)

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


def rollouts_of(world: World, minutes: float = 480, look_seconds: float = 60) -> list[Outcome]:
    return [roll_out(world, seed, minutes=minutes, look_seconds=look_seconds) for seed in RUNS]


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize(
    "world_of",
    [
        lambda volume: hurried_callers(volume, 0.5),
        callers_of_all_sorts,
        lambda volume: callers_of_all_sorts(volume, pareto=1.5),
        lambda volume: callers_of_all_sorts(volume, pod_noise=0.03),
    ],
)
def test_callers_deadlines_take_no_equal_version_back_and_leave_the_split_alone(
    world_of: Callable[[int], World], volume: int
):
    world = world_of(volume)

    outcomes = rollouts_of(world)

    false = sum(outcome.rolled_back for outcome in outcomes)
    invalid = sum(outcome.is_invalid for outcome in outcomes)
    ended = sum(outcome.finished for outcome in outcomes)
    say(f"A/A {world.name}, {volume}/min (bar 0)", f"{false} of {len(outcomes)} back, {invalid} invalid, {ended} ended")
    assert (false, invalid) == (0, 0)
    assert ended >= 0.8 * len(outcomes)


@pytest.mark.parametrize("volume", VOLUMES)
def test_an_equal_version_whose_callers_are_all_hurried_is_held_and_never_taken_back(volume: int):
    outcomes = rollouts_of(hurried_callers(volume), minutes=60)

    say(f"A/A every call hurried, {volume}/min", f"{sum(one.rolled_back for one in outcomes)} of {len(outcomes)} back")
    assert all(one.verdict == Verdict.HOLD for one in outcomes)
    assert all("were left out: their callers' deadlines" in one.reason for one in outcomes)


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize(
    ("world_of", "bar_requests"),
    [
        (lambda volume: slow_under_deadlines(volume, 1.5), 350),
        (lambda volume: slow_under_deadlines(volume, 3.0), 350),
        (lambda volume: slow_under_deadlines(volume, 1e6), 350),
        (lambda volume: failing_under_deadlines(volume, 10), 450),
        (lambda volume: failing_under_deadlines(volume, 1e6), 80),
    ],
)
def test_what_is_slow_or_fails_is_found_under_deadlines_that_the_champions_latency_fits_in(
    world_of: Callable[[int], World], bar_requests: int, volume: int
):
    world = world_of(volume)

    outcomes = rollouts_of(world, minutes=240, look_seconds=10)

    requests = median(outcome.challenger_requests for outcome in outcomes)
    minutes = median(outcome.minute for outcome in outcomes)
    say(f"{world.name}, {volume}/min (bar {bar_requests})", f"median {requests:,.0f} requests, {minutes:.1f} min")
    assert all(outcome.rolled_back for outcome in outcomes)
    assert requests <= bar_requests
