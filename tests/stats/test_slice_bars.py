"""The bars of slices (statistics page), through the product's own tally and evaluator.

Short by default; :mod:`stats.pieces` says how the numbers of runs that the page names are made.
"""

from typing import Any

import numpy as np
import pytest
from stats.pieces import runs, say
from stats.simulated_rollouts import STEPS, roll_out
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, equal_categories, failing_category, slow_category

from understudy.core.canary.slices.failing_slices import UNIT_SECONDS, failing_slices
from understudy.core.canary.slices.slice_tally import SliceTally, slice_units

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


def named_slices_of(world: World, seed: int) -> set[str]:
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
    return named


@pytest.mark.parametrize("volume", [333, 3_000])
@pytest.mark.parametrize("name", EQUAL)
def test_of_forty_equal_slices_one_is_hardly_ever_named(name, volume):
    world = equal_categories(volume, **EQUAL[name])

    false = sum(bool(named_slices_of(world, seed)) for seed in EQUAL_RUNS)

    say(f"40 equal slices, {name}, {volume}/min", f"a name in {false} of {len(EQUAL_RUNS)}")
    assert false <= 0.05 * len(EQUAL_RUNS)
