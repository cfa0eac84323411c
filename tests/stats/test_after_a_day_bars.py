"""A challenger that turns bad after a day in one step: how long until it is back, at both volumes.

Short by default; ``UNDERSTUDY_STATS=full`` makes 50 runs of each, or a piece of them (:mod:`stats.pieces`).
"""

from dataclasses import replace
from statistics import median

import pytest
from stats.kept_runs import kept
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import hour_before
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, plain, wandering_pods

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import join_strata, stratify

ONSET_MINUTE = 1_441.0
"""A minute after the hourly evidence began anew."""
PHASE_MINUTES = 23
"""How much later in its hour each run has its onset than the one before: sixty runs have every minute of it. In the
middle three times the errors take longer: what began before has lost to a healthy half an hour, and the next has not
begun."""
HOUR_WINDOWS = 60 * PER_MINUTE
WEIGHT_PERCENT = 10.0
LOOK_SECONDS = 30

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 600)


@kept(float)
def minutes_until_back(world: World, seed: int, within_hours: int) -> float:
    """Return how long after its onset a regression takes the share back; infinity if not within so many hours."""
    traffic = Traffic(world, seed)
    before = hour_before(world, seed, traffic)
    hours = range(int(world.onset_minute // 60) + within_hours + 1)
    strata = join_strata(
        [stratify(traffic.windows(HOUR_WINDOWS * hour, HOUR_WINDOWS, WEIGHT_PERCENT), ROLLOUT) for hour in hours]
    )
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), 1, WEIGHT_PERCENT, {1: WEIGHT_PERCENT},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    policy = CanaryPolicy(min_entities=1)
    onset = 60 * world.onset_minute
    for passed in range(LOOK_SECONDS, 3_600 * within_hours + 1, LOOK_SECONDS):
        now = onset + passed
        # Without the window that is open: all that will be in it is there already in these strata.
        if judge(strata.until(now), policy, stage, now).verdict is Verdict.ROLL_BACK:
            return passed / 60
    return float("inf")


@pytest.mark.parametrize(("volume", "bar", "within_hours"), [(333, 120, 4), (3_000, 30, 1)])
def test_three_times_the_errors_after_a_day_are_taken_back_in_time(volume, bar, within_hours):
    worse = World("errors x3", volume, error_factor=3.0, onset_minute=ONSET_MINUTE)

    minutes = [
        minutes_until_back(replace(worse, onset_minute=ONSET_MINUTE + PHASE_MINUTES * seed % 60), seed, within_hours)
        for seed in runs(short=9, full=60)
    ]

    say(
        f"errors x3 after a day, {volume}/min (bar: median {bar} min)",
        f"median {median(minutes):.1f}, most {max(minutes):.1f} of {len(minutes)}",
    )
    assert median(minutes) <= bar


@pytest.mark.parametrize(
    ("world", "factor", "bar"),
    [(plain(), 2.0, 15), (plain(), 10.0, 5), (wandering_pods(pod_noise=0.2), 10.0, 10)],
    ids=lambda value: value.name if isinstance(value, World) else f"{value:g}",
)
def test_a_challenger_that_turns_slow_after_a_day_of_much_traffic_is_taken_back_within_minutes(world, factor, bar):
    """At 333 requests a minute it is a bar of the canary analysis (``test_canary_bars.py``)."""
    late = replace(world, requests_per_minute=3_000, latency_factor=factor, onset_minute=ONSET_MINUTE)

    minutes = [minutes_until_back(late, seed, 1) for seed in runs(short=1, full=50)]

    say(
        f"latency x{factor:g} after a day, {world.name}, 3,000/min (bar: median {bar} min)",
        f"median {median(minutes):.1f}, most {max(minutes):.1f} of {len(minutes)}",
    )
    assert median(minutes) <= bar
