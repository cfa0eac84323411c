"""A slower challenger is found in every world, and not on calm servers alone: how many calls it gets until then.

Short by default; ``UNDERSTUDY_STATS=full`` makes 100 runs of each at each volume, or a piece (:mod:`stats.pieces`).

A typical latency rolls a challenger back by itself from 1.3 times on (``lone_latency_ratio``). Whether one that is just
that slow is measured above or below it is chance, and below it goes back when its slow answers say so as well, which
takes thousands of calls. So of 1.3 times the calls are counted until its step is held.
"""

from dataclasses import replace
from statistics import median

import pytest
from stats.kept_runs import kept
from stats.pieces import IS_FULL, runs, say
from stats.simulated_rollouts import BLOCK_WINDOWS, STEPS, hour_before, roll_out
from stats.worlds import (
    ROLLOUT,
    Traffic,
    World,
    diurnal,
    one_burst,
    pareto_latency,
    retrying_callers,
    two_modes,
    wandering_pods,
)

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import CheckState
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

VOLUMES = (333, 3_000)
"""Requests per minute."""
LOOK_SECONDS = 10
WORLDS = (
    diurnal(),
    wandering_pods(),
    retrying_callers(),
    pareto_latency(),
    one_burst(),
    World("few errors", error_rate=0.0005),
    World("many errors, wandering pods", error_rate=0.05, pod_noise=0.03),
    World("waves and bursts", wave=0.5, bursts_per_hour=1.0),
    # The logarithm of their latency scatters by 0.77 and 0.83, that of Pareto's by 0.67 and that of the plain one by
    # 0.5: what is proven of a mean takes the square of it.
    two_modes(),
    World("heavy tail", tail_ratio=0.02, log_sigma=0.8),
)

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_challenger_of_1_5_times_the_latency_is_taken_back_within_350_requests_in_every_world(world, volume):
    slower = replace(world, requests_per_minute=volume, latency_factor=1.5)

    outcomes = [roll_out(slower, seed, look_seconds=LOOK_SECONDS, minutes=240) for seed in runs(short=3, full=100)]

    requests = [outcome.challenger_requests if outcome.rolled_back else float("inf") for outcome in outcomes]
    say(
        f"latency x1.5, {world.name}, {volume}/min (bar 350 requests)",
        f"median {median(requests):,.0f}, most {max(requests):,.0f}",
    )
    assert median(requests) <= 350


@kept(float)
def requests_until_held(world: World, seed: int) -> float:
    """Return the challenger's calls until its typical latency fails with both keys, which holds its step or ends it."""
    traffic, strata, step = Traffic(world, seed), stratify([], ROLLOUT), STEPS[0]
    before = hour_before(world, seed, traffic)
    stage = Stage(
        "fraud", "42", ROLLOUT, (0.0,), len(STEPS), step.weight_percent, {1: step.weight_percent},
        champion_before=before.blocks, tail_steps=before.tail_steps,
    )  # fmt: skip
    for first in range(0, 16 * BLOCK_WINDOWS, BLOCK_WINDOWS):
        strata = join_strata([strata, stratify(traffic.windows(first, BLOCK_WINDOWS, step.weight_percent), ROLLOUT)])
        begins, ends = first * WINDOW_SECONDS, (first + BLOCK_WINDOWS) * WINDOW_SECONDS
        for now in range(begins + LOOK_SECONDS, ends + 1, LOOK_SECONDS):
            rows = judge(strata, CanaryPolicy(), stage, float(now)).evidence
            typical = next(row for row in rows if row.check is TYPICAL_LATENCY)
            if typical.state is CheckState.FAIL:
                return typical.challenger_requests
    return float("inf")


@pytest.mark.parametrize("volume", VOLUMES if IS_FULL else VOLUMES[1:])
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_challenger_of_1_3_times_the_latency_is_held_or_back_within_830_requests_in_every_world(world, volume):
    slower = replace(world, requests_per_minute=volume, latency_factor=1.3)

    requests = [requests_until_held(slower, seed) for seed in runs(short=3, full=100)]

    say(
        f"latency x1.3, {world.name}, {volume}/min (bar 830 requests until it is held)",
        f"median {median(requests):,.0f}, most {max(requests):,.0f}",
    )
    assert median(requests) <= 830
