"""Looks that make no analysis change no outcome, whatever is wrong with the challenger."""

from dataclasses import replace

import pytest
from stats.calm_looks import CalmLooks
from stats.simulated_rollouts import ROLLOUT, STEPS, hour_before, roll_out
from stats.worlds import PER_MINUTE, Traffic, World, plain, slow_thousandths, wandering_pods

from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import stratify

WORLDS = (
    plain(),
    World("errors x3", error_factor=3.0),
    World("every request fails", error_factor=1e6),
    World("errors x10 from minute 45 on", error_factor=10.0, onset_minute=45),
    World("latency x1.3 from minute 45 on", latency_factor=1.3, onset_minute=45),
    World("slowest tenth x3", slowest_tenth_factor=3.0),
    slow_thousandths(),
    wandering_pods(pod_noise=0.2),
    World("cold server x4", cold_factor=4.0),
    World("a fifth of its entities lost", lost_ratio=0.2),
    World("errors x3, half of them on both", error_factor=3.0, shared_ratio=0.5),
)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_looks_that_are_left_out_change_no_outcome(world):
    slower = replace(world, requests_per_minute=333)

    assert roll_out(slower, 0, minutes=90) == roll_out(slower, 0, minutes=90, analyses_calm_looks=True)


def test_nearly_all_looks_at_equal_versions_are_calm_and_none_at_a_challenger_that_fails_every_call():
    shares = {}
    for world in (plain(333), World("every request fails", 333, error_factor=1e6)):
        traffic = Traffic(world, 0)
        strata, minutes = stratify(traffic.windows(0, 90 * PER_MINUTE, 10.0), ROLLOUT), range(31, 91)
        before = hour_before(world, 0, traffic)
        stage = Stage(
            "fraud", "42", ROLLOUT, (0.0,), len(STEPS), 10.0, {1: 10.0},
            champion_before=before.blocks, tail_steps=before.tail_steps,
        )  # fmt: skip
        calm = CalmLooks(strata, CanaryPolicy(), stage)
        shares[world.name] = sum(calm.has(60.0 * minute) for minute in minutes) / len(minutes)

    assert shares["plain"] >= 0.8
    assert shares["every request fails"] == 0
