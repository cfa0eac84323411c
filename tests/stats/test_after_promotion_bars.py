"""What the watch over a new champion is worth: there is no control any more, only the old one's last hour.

Short by default; ``UNDERSTUDY_STATS=full`` makes more runs. ``pytest -s`` shows each figure.
"""

import os
import sys
from dataclasses import replace
from statistics import median

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import Stage
from understudy.core.canary.post_promotion import judge_watch, past_of, watch_of
from understudy.core.routing.policy import Role
from understudy.core.windows.window import WINDOW_SECONDS

FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
BEFORE_MINUTES, WARM_MINUTES = 90, 30
SHORT_MINUTES = 2
"""What a champion leaves behind whose model had no calls before."""

pytestmark = pytest.mark.timeout(3_600 if FULL else 120)


def minutes_until_flipped_back(world: World, seed: int, before_minutes: int = BEFORE_MINUTES) -> float:
    """Return when the old champion came back, in minutes after the promotion; infinity if it did not."""
    traffic = Traffic(replace(world, onset_minute=before_minutes + world.onset_minute), seed)
    before = traffic.windows(0, before_minutes * PER_MINUTE, 50.0, 1)
    after = traffic.windows(before_minutes * PER_MINUTE, WARM_MINUTES * PER_MINUTE, 100.0, 2)
    ids = {window.key.role: window.key.model_version_id for window in before}
    promoted_at = 60.0 * before_minutes
    stage = Stage("fraud", "42", ROLLOUT, (0.0, promoted_at), 2, 100.0, {1: 50.0})
    for minute in range(1, WARM_MINUTES + 1):
        now = promoted_at + 60.0 * minute
        seen = [window for window in before + after if window.key.start + WINDOW_SECONDS <= now]
        past = past_of(seen, stage, ids[Role.CHAMPION])
        watch = watch_of(past, seen, stage, ids[Role.CHALLENGER], now + 5)
        if watch is not None and judge_watch(watch, now + 5).verdict is Verdict.ROLL_BACK:
            return minute
    return float("inf")


@pytest.mark.parametrize(
    "world",
    [
        World("plain"),
        World("many errors, wandering pods", error_rate=0.05, pod_noise=0.03),
        World("heavy tail", tail_ratio=0.02, log_sigma=0.8),
    ],
    ids=lambda world: world.name,
)
def test_an_equal_champion_hardly_ever_goes_back(world):
    runs = 100 if FULL else 2

    back = sum(minutes_until_flipped_back(world, seed) < WARM_MINUTES + 1 for seed in range(runs))

    sys.stdout.write(f"\nafter promotion, A/A {world.name} (bar 1 %): {back} of {runs} went back")
    assert back <= 0.01 * runs


@pytest.mark.parametrize(
    "world",
    [
        World("short past, few calls", requests_per_minute=240),
        World("short past, few calls, more errors", requests_per_minute=240, error_rate=0.02),
        World("short past, heavy tail", requests_per_minute=3_000, tail_ratio=0.02, log_sigma=0.8),
    ],
    ids=lambda world: world.name,
)
def test_a_short_past_counts_once_however_long_the_watch_lasts(world):
    runs = 200 if FULL else 60

    back = sum(minutes_until_flipped_back(world, seed, SHORT_MINUTES) < WARM_MINUTES + 1 for seed in range(runs))

    sys.stdout.write(f"\nafter promotion, A/A {world.name} (bar 1 %): {back} of {runs} went back")
    assert back <= 0.01 * runs


@pytest.mark.parametrize("onset_minute", [0, 10])
def test_a_short_past_is_enough_to_see_a_champion_that_fails_everybody(onset_minute):
    world = World("every request fails", requests_per_minute=240, error_factor=1e6, onset_minute=onset_minute)

    minutes = [minutes_until_flipped_back(world, seed, SHORT_MINUTES) for seed in range(20 if FULL else 3)]

    sys.stdout.write(f"\nafter promotion, short past, fails from minute {onset_minute}: median {median(minutes):.0f}")
    assert median(minutes) <= onset_minute + 4


@pytest.mark.parametrize(
    ("world", "bar"),
    [
        (World("every request fails", error_factor=1e6), 3),
        (World("errors x10", error_factor=10), 5),
        (World("latency x1.5", latency_factor=1.5), 5),
    ],
    ids=lambda value: value.name if isinstance(value, World) else "",
)
def test_a_champion_that_gets_worse_after_its_promotion_goes_back_in_minutes(world, bar):
    minutes = [minutes_until_flipped_back(world, seed) for seed in range(20 if FULL else 3)]

    sys.stdout.write(f"\nafter promotion, {world.name} (bar minute {bar}): median minute {median(minutes):.0f}")
    assert median(minutes) <= bar


def test_a_tide_of_errors_is_not_told_from_a_regression():
    """What this watch cannot do, on record: errors that swing by half and come in bursts look like a worse model."""
    world = World("waves and bursts", wave=0.5, bursts_per_hour=1.0)
    runs = 100 if FULL else 3

    back = sum(minutes_until_flipped_back(world, seed) < WARM_MINUTES + 1 for seed in range(runs))

    sys.stdout.write(f"\nafter promotion, A/A {world.name} (no bar): {back} of {runs} went back")
    assert back < runs
