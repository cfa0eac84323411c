"""The bar of a declared outcome in a rollout: an equal challenger is hardly ever taken back for it, at any analysis.

Short by default; ``UNDERSTUDY_STATS=full`` makes more runs. ``pytest -s`` shows each figure beside its bar.
"""

import os
import sys
from statistics import median

import numpy as np
import pytest

from understudy.core.canary.check_input import CheckInput
from understudy.core.canary.checks import needed_of
from understudy.core.canary.decision import CheckState
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.outcome_check import OUTCOME, judge_outcome
from understudy.core.statistics.difference import Difference
from understudy.core.windows.strata import stratify

FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
STEPS = (2, 5, 10, 25, 50)
MINUTES_A_STEP = 60
ENTITIES_A_MINUTE = 500
POLICY = CanaryPolicy(outcome="converted")
NEEDED = needed_of(POLICY)[OUTCOME.name]
INPUTS = CheckInput(stratify([], 1), POLICY, Stage("fraud", "42", 1, (0.0,), 5, 50.0, {1: 50.0}), (0,), 0)


def difference(entities: np.ndarray, converted: np.ndarray) -> Difference:
    ratios = converted / entities
    variances = ratios * (1 - ratios) * entities / (entities - 1)
    return Difference(
        entities_a=int(entities[0]),
        entities_b=int(entities[1]),
        effective_a=float(entities[0]),
        effective_b=float(entities[1]),
        value_a=float(ratios[0]),
        value_b=float(ratios[1]),
        difference=float(ratios[1] - ratios[0]),
        variance_a=float(variances[0]),
        variance_b=float(variances[1]),
    )


def entities_until_rolled_back(ratio: float, change: float, seed: int) -> int | None:
    """Return how many entities met the challenger by then, with a look every minute; ``None``: it got through."""
    random = np.random.default_rng(seed)
    entities, converted = np.zeros(2), np.zeros(2)
    for weight in STEPS:
        shares = np.array([100 - weight, weight]) / 100
        for _ in range(MINUTES_A_STEP):
            came = random.poisson(ENTITIES_A_MINUTE * shares)
            entities += came
            converted += random.binomial(came, [ratio, ratio * change])
            if entities.min() < 2:
                continue
            inputs = INPUTS._replace(outcome=difference(entities, converted))
            if judge_outcome(inputs, NEEDED).state is CheckState.FAIL:
                return int(entities[1])
    return None


@pytest.mark.parametrize("ratio", [0.002, 0.01, 0.05, 0.3])
def test_a_challenger_just_at_the_limit_is_hardly_ever_taken_back(ratio):
    runs = 2_000 if FULL else 100
    at_the_limit = 1 - POLICY.outcome_limit_ratio

    false = sum(entities_until_rolled_back(ratio, at_the_limit, seed) is not None for seed in range(runs))

    sys.stdout.write(f"\noutcome at the limit, {ratio:.1%} convert (bar 1 %): {false} of {runs} taken back")
    assert false <= 0.01 * runs


@pytest.mark.parametrize(("ratio", "bar"), [(0.05, 8_000), (0.3, 1_500)])
def test_an_outcome_that_falls_by_a_quarter_is_found(ratio, bar):
    found = [entities_until_rolled_back(ratio, 0.75, seed) for seed in range(200 if FULL else 30)]

    known = [count for count in found if count is not None]
    sys.stdout.write(f"\noutcome x0.75, {ratio:.1%} convert (bar {bar:,}): median {median(known):,.0f} entities")
    assert len(known) == len(found)
    assert median(known) <= bar
