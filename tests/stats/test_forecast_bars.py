"""Forecasts: a ladder that is said to end does, in about the time said; one that cannot end is warned of beforehand.

Short by default; ``UNDERSTUDY_STATS=full`` makes 40 runs of each world.
"""

import os
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from stats.simulated_rollouts import Outcome, Step, roll_out
from stats.worlds import PER_MINUTE, World
from stats.worlds import Traffic as WorldTraffic

from understudy.core.canary.decision import Verdict
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic
from understudy.core.rollout.forecast import Needs, RolloutForecast, forecast
from understudy.core.rollout.plan import NAMED_PLANS, WHOLE_PERCENT, RolloutPlan, usual_step

IS_FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
RUNS = 40 if IS_FULL else 3
NEEDS = Needs(entities=30, policy=CanaryPolicy())
DEFAULT = NAMED_PLANS["default"]
TENANTS, ENTITIES = World("300 tenants", entities=300), World("1,000 entities", entities=1_000)
ENDING = (World("plain", 333.0), World("plain"), World("Zipf", 333.0, zipf=1.0))
HEAVY = World("Zipf", zipf=1.0)
"""One entity makes 8 % of the calls, 60 in a window: of twelve rollouts two were held until a person decides."""

pytestmark = pytest.mark.timeout(7_200 if IS_FULL else 300)


def named(world: World) -> str:
    return f"{world.name} {world.requests_per_minute:g}/min"


def today(world: World, seed: int = 99) -> Traffic:
    """Return what the product knows of a world: an hour of windows, and the entities of the newest calls of a day."""
    traffic = WorldTraffic(world, seed)
    calls = np.bincount(traffic.drawn_entities(int(min(200_000, 1_440 * world.requests_per_minute))))
    windows = traffic.windows(0, 60 * PER_MINUTE, 0.0)
    entities = sum(window.entities for window in windows)
    return Traffic(
        world.requests_per_minute / 60,
        EntityCalls(Counter(calls[calls > 0].tolist())),
        sum(window.error_entities for window in windows) / entities,
        entities / sum(window.calls for window in windows),
        world.log_sigma,
    )


def plan_of(weights: tuple[int, ...]) -> RolloutPlan:
    steps = (usual_step(weight, DEFAULT.strategy)._replace(weight_percent=weight) for weight in weights)
    return replace(DEFAULT, steps=tuple(steps))


def run(world: World, plan: RolloutPlan, expected: RolloutForecast, seed: int) -> Outcome:
    """Roll out through the product's evaluator for up to twice the expected time."""
    steps = [step for step in plan.steps if step.weight_percent < WHOLE_PERCENT]
    ladder = tuple(Step(step.weight_percent, step.dwell_seconds / 60) for step in steps)
    assert expected.seconds is not None
    return roll_out(world, seed, steps=ladder, minutes=expected.seconds / 30, look_seconds=300.0)


def ended(world: World, plan: RolloutPlan) -> int:
    """Return how many rollouts of equal versions end within twice the time that is said."""
    expected = forecast(plan, today(world), NEEDS)
    assert not expected.warnings
    outcomes = [run(world, plan, expected, seed) for seed in range(RUNS)]
    done = sum(outcome.finished and outcome.verdict == Verdict.ADVANCE for outcome in outcomes)
    took = [round(outcome.minute) for outcome in outcomes]
    sys.stdout.write(f"\n{named(world)}: {(expected.seconds or 0) / 60:.0f} m said, {took} m taken; {done} of {RUNS}")
    return done


@pytest.mark.parametrize("world", ENDING, ids=named)
def test_a_ladder_that_is_said_to_end_ends_within_twice_the_time(world):
    assert ended(world, DEFAULT) >= 0.95 * RUNS


def test_a_ladder_that_the_heaviest_entity_may_hold_is_warned_of():
    expected = forecast(DEFAULT, today(HEAVY), NEEDS)

    assert [words.partition(" %")[0] for words in expected.warnings] == ["one entity makes 7.9"]
    outcome = run(HEAVY, DEFAULT, expected, 3)
    assert outcome.reason.startswith("proven for too few entities")


@pytest.mark.parametrize("world", [TENANTS, ENTITIES], ids=named)
def test_the_ladder_that_is_named_where_the_default_one_cannot_end_does_end(world):
    warned = forecast(DEFAULT, today(world), NEEDS)

    assert "cannot end" in warned.warnings[0]
    assert warned.nearest is not None
    assert ended(world, plan_of(warned.nearest)) >= 0.95 * RUNS


@pytest.mark.parametrize("world", [TENANTS, ENTITIES], ids=named)
def test_a_ladder_that_is_said_not_to_end_does_not(world):
    for seed in range(RUNS):
        outcome = roll_out(world, seed, minutes=480, look_seconds=1_800.0)

        assert (outcome.step, outcome.finished) == (1, False)


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize(
    "world",
    [TENANTS, World("300 tenants with their own error level", zipf=0.8, entities=300, own_errors=1.0, error_rate=0.01)],
    ids=lambda world: world.name,
)
def test_rollouts_among_three_hundred_tenants_end_or_were_warned_of_before_their_start(world, volume):
    one = replace(world, requests_per_minute=volume)
    seeds = range(300 if IS_FULL else 5)

    forecasts = {seed: forecast(DEFAULT, today(one, seed), NEEDS) for seed in seeds}
    unwarned = [seed for seed, expected in forecasts.items() if not expected.warnings]
    ended = sum(run(one, DEFAULT, forecasts[seed], seed).finished for seed in unwarned)

    sys.stdout.write(
        f"\n{world.name}, {volume}/min (bar 95 %): {len(seeds) - len(unwarned)} of {len(seeds)} were warned of, "
        f"{ended} of the {len(unwarned)} others ended"
    )
    assert len(seeds) - len(unwarned) + ended >= 0.95 * len(seeds)
