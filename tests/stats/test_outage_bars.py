"""Outages: a challenger that goes dead at any moment of a rollout is back in minutes; what both sides share is not its.

Short by default; ``UNDERSTUDY_STATS=full`` makes 50 runs of each, or a piece of them (:mod:`stats.pieces`).
"""

import itertools
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from numpy.typing import NDArray
from stats.kept_runs import kept
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import STEPS, hour_before
from stats.worlds import PER_MINUTE, ROLLOUT, FloatArray, IntArray, Traffic, World, plain, retrying_callers

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import Strata, join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

VOLUMES = (333, 3_000)
"""Requests per minute."""
STARTS = tuple(itertools.accumulate((step.dwell_minutes for step in STEPS), initial=0.0))
"""Minutes at which the default ladder takes each step, and ends, when it waits for nothing but its times."""
TICK_SECONDS = 5

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


@kept(float)
def minutes_until_back(world: World, seed: int) -> float:
    """Return how long after its onset a challenger is taken back, on the default ladder; infinity if not in 15 min."""
    traffic = Traffic(world, seed)
    begun = [number for number, start in enumerate(STARTS[:-1]) if start < world.onset_minute]
    ends = [*(STARTS[number] for number in begun[1:]), int(world.onset_minute) + 17]
    parts = []
    for number, end in zip(begun, ends, strict=True):
        first = int(STARTS[number] * PER_MINUTE)
        windows = traffic.windows(first, int(end * PER_MINUTE) - first, STEPS[number].weight_percent, number + 1)
        parts.append(stratify(windows, ROLLOUT))
    strata, policy = join_strata(parts), CanaryPolicy()
    stage = Stage(
        "fraud",
        "42",
        ROLLOUT,
        tuple(60.0 * STARTS[number] for number in begun),
        len(STEPS),
        STEPS[begun[-1]].weight_percent,
        {number: step.weight_percent for number, step in enumerate(STEPS, 1)},
    )
    for passed in range(0, 900, TICK_SECONDS):
        now = 60 * world.onset_minute + passed
        # Without the window that is open: all that will be in it is there already in these strata.
        if judge(strata.until(now), policy, stage, now).verdict is Verdict.ROLL_BACK:
            return passed / 60
    return float("inf")


@pytest.mark.parametrize("volume", VOLUMES)
def test_a_challenger_that_goes_dead_at_any_moment_of_its_rollout_is_taken_back_within_five_minutes(volume):
    minutes = []
    for seed in runs(short=10, full=300):
        onset = float(np.random.default_rng([seed, 114]).uniform(1, STARTS[-1]))
        world = World("dead from some minute on", volume, error_factor=1e6, onset_minute=onset)
        minutes.append(minutes_until_back(world, seed))

    say(
        f"every request fails from any minute of the ladder on, {volume}/min (bar 5 min)",
        f"median {median(minutes):.1f}, most {max(minutes):.1f} of {len(minutes)}",
    )
    assert max(minutes) <= 5


OUTAGE_MINUTE = 45
WATCHED_MINUTES = 120
WEIGHT_PERCENT = 10.0


class CommonOutage(Traffic):
    """Traffic of which calls of both sides fail for a while, as where they share what is behind them."""

    def __init__(self, world: World, seed: int, minutes: float, error_rate: float) -> None:
        super().__init__(world, seed)
        self._minutes = minutes
        self._error_rate = error_rate

    def _error_chance(
        self, numbers: IntArray, window: IntArray, entity: IntArray, affected: NDArray[np.bool_]
    ) -> FloatArray:
        usual = super()._error_chance(numbers, window, entity, affected)
        since = numbers[window] / PER_MINUTE - OUTAGE_MINUTE
        return np.where((since >= 0) & (since < self._minutes), np.maximum(usual, self._error_rate), usual)


@kept(bool)
def is_taken_back(world: World, seed: int, minutes: float, error_rate: float) -> bool:
    """Return whether an equal version is taken back in or after an outage of both, with a look for each window."""
    traffic = CommonOutage(world, seed, minutes, error_rate)
    before = hour_before(world, seed, traffic)
    strata: Strata = stratify(traffic.windows(0, WATCHED_MINUTES * PER_MINUTE, WEIGHT_PERCENT), ROLLOUT)
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), 1, WEIGHT_PERCENT, {1: WEIGHT_PERCENT},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    policy = CanaryPolicy(min_entities=1)
    ends = range(OUTAGE_MINUTE * 60, WATCHED_MINUTES * 60, WINDOW_SECONDS)
    return any(judge(strata.until(now), policy, stage, float(now)).verdict is Verdict.ROLL_BACK for now in ends)


@pytest.mark.parametrize("volume", VOLUMES)
@pytest.mark.parametrize(("minutes", "error_rate"), [(10, 1.0), (10, 0.3), (60, 0.3)])
@pytest.mark.parametrize("world", [plain(), retrying_callers()], ids=lambda world: world.name)
def test_an_outage_of_both_versions_takes_none_back(world, minutes, error_rate, volume):
    one = replace(world, requests_per_minute=volume)
    seeds = runs(short=1, full=50)

    back = sum(is_taken_back(one, seed, minutes, error_rate) for seed in seeds)

    say(
        f"{minutes} min of {100 * error_rate:g} % errors on both sides, {world.name}, {volume}/min (bar 0)",
        f"{back} of {len(seeds)} back",
    )
    assert back == 0
