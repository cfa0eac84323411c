"""Cold servers: an equal version that gets warm in half an hour stays, and what is slow by itself is still found.

Short by default; ``UNDERSTUDY_STATS=full`` makes 40 runs of each at each volume, or a piece (:mod:`stats.pieces`).
"""

from collections.abc import Sequence
from statistics import median

import pytest
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import Outcome, roll_out
from stats.worlds import World, cold_and_then_slow, cold_server

from understudy.core.canary.limits import Rules

RUNS = runs(1, full=40)
VOLUMES = (333, 3_000)
"""Requests per minute."""

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


def named(world: World) -> str:
    return world.name


def rollouts_of(world: World, *, minutes: float, look_seconds: float, rules: Rules = Rules.COLD) -> list[Outcome]:
    return [roll_out(world, seed, minutes=minutes, look_seconds=look_seconds, rules=rules) for seed in RUNS]


def requests_of(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.challenger_requests if outcome.rolled_back else float("inf") for outcome in outcomes]


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_an_equal_version_whose_server_is_cold_stays(factor, volume):
    world = cold_server(volume, factor)

    outcomes = rollouts_of(world, minutes=75, look_seconds=30)
    before = rollouts_of(world, minutes=75, look_seconds=30, rules=Rules.TAILS)

    back, once = (sum(outcome.rolled_back for outcome in some) for some in (outcomes, before))
    say(f"A/A {world.name}, {volume}/min (bar 0)", f"{back} of {len(RUNS)} back, by the rules before {once}")
    assert back == 0
    assert once >= len(RUNS) / 2
    assert all(outcome.step > 1 for outcome in outcomes)


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
def test_a_whole_rollout_of_an_equal_version_whose_server_was_cold_ends(volume):
    outcomes = rollouts_of(cold_server(volume, 3.0), minutes=600, look_seconds=60)

    ended = sum(outcome.finished for outcome in outcomes)
    last = max(outcome.minute for outcome in outcomes)
    say(
        f"whole rollout, cold server x3, {volume}/min (bar 80 %)",
        f"{ended} of {len(RUNS)} ended, the last in {last:.0f}",
    )
    assert not any(outcome.rolled_back for outcome in outcomes)
    assert ended >= 0.8 * len(RUNS)


@pytest.mark.parametrize(("volume", "bar_minutes"), [(333, 60), (3_000, 25)])
@pytest.mark.parametrize("stays", [1.5, 2.0])
def test_a_version_that_is_cold_and_then_stays_slow_is_taken_back_soon_after_it_stops_falling(
    stays, volume, bar_minutes
):
    world = cold_and_then_slow(volume, 3.0, stays)

    outcomes = rollouts_of(world, minutes=240, look_seconds=30)

    minutes = [outcome.minute if outcome.rolled_back else float("inf") for outcome in outcomes]
    say(f"{world.name}, {volume}/min (bar minute {bar_minutes})", f"median {median(minutes):.1f}, last {max(minutes)}")
    assert median(minutes) <= bar_minutes
    assert all(outcome.rolled_back for outcome in outcomes)


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize(
    ("world_of", "bar_requests"),
    [
        (lambda volume: World("latency x1.5", volume, latency_factor=1.5), 250),
        (lambda volume: World("latency x1.3", volume, latency_factor=1.3), 700),
        (lambda volume: World("latency x2", volume, latency_factor=2.0), 500),
        (lambda volume: World("latency x3", volume, latency_factor=3.0), 450),
        (lambda volume: World("latency x10", volume, latency_factor=10.0), 100),
    ],
)
def test_what_is_slow_by_itself_is_not_taken_for_cold_for_long(world_of, bar_requests, volume):
    world = world_of(volume)

    outcomes = rollouts_of(world, minutes=240, look_seconds=10)
    before = rollouts_of(world, minutes=240, look_seconds=10, rules=Rules.TAILS)

    requests = requests_of(outcomes)
    waits = [one.minute - other.minute for one, other in zip(outcomes, before, strict=True)]
    say(
        f"{world.name}, {volume}/min (bar {bar_requests} requests)",
        f"median {median(requests):,.0f}, before {median(requests_of(before)):,.0f}; held for a median of"
        f" {median(waits):.1f} min, more than ten in {sum(wait > 10 for wait in waits)} of {len(RUNS)}",
    )
    assert median(requests) <= bar_requests
