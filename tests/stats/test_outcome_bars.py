"""The bars of outcomes in a rollout: equal challengers are hardly ever taken back, and held no longer than is said.

A challenger that is worse than its margin ends hardly any step that an outcome holds.

Short by default; ``UNDERSTUDY_STATS=full`` makes more runs. ``pytest -s`` shows each figure beside its bar.
"""

import os
import sys
from collections.abc import Sequence
from math import sqrt
from statistics import median
from typing import NamedTuple

import numpy as np
import pytest

from understudy.core.canary.checks import needed_of
from understudy.core.canary.decision import CheckState
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.held_outcomes import entities_to_show, outcomes_missing
from understudy.core.canary.outcomes.outcome_check import OUTCOME, judge_of_several, judge_outcome
from understudy.core.statistics.difference import Difference
from understudy.core.windows.strata import stratify

FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
STEPS = (2, 5, 10, 25, 50)
MINUTES_A_STEP = 60
ENTITIES_A_MINUTE = 500
ENTITIES_A_LOOK = 500
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
            inputs = INPUTS._replace(outcomes=(difference(entities, converted),))
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


class Held(NamedTuple):
    """How a rollout went that its outcomes hold."""

    entities: int | None
    """Of the challenger, when all were shown to be within their margins; ``None``: they never were."""
    is_taken_back: bool


def several(ratios: Sequence[float], margin: float, changes: Sequence[float], share_b: float, seed: int) -> Held:
    """Let entities come until the outcomes let the step end, or three times as many as are said; a look every 500."""
    random = np.random.default_rng(seed)
    limits = tuple(OutcomeLimit(f"o{number}", margin, holds_step=True) for number in range(len(ratios)))
    policy = CanaryPolicy(outcomes=limits)
    needed = needed_of(policy)
    asked = max(stated(ratio, margin, share_b) for ratio in ratios)
    entities, happened = np.zeros(2), np.zeros((len(ratios), 2))
    while entities[1] < 3 * asked:
        came = random.poisson(ENTITIES_A_LOOK * np.array([1 - share_b, share_b]))
        entities += came
        for number, (ratio, change) in enumerate(zip(ratios, changes, strict=True)):
            happened[number] += random.binomial(came, [ratio, ratio * change])
        inputs = INPUTS._replace(policy=policy, outcomes=tuple(difference(entities, one) for one in happened))
        rows = [judge_of_several(number, inputs, needed[f"outcome_{number + 1}"]) for number in range(len(ratios))]
        if any(row.state is CheckState.FAIL for row in rows):
            return Held(None, is_taken_back=True)
        if not outcomes_missing(inputs, rows):
            return Held(int(entities[1]), is_taken_back=False)
    return Held(None, is_taken_back=False)


def stated(ratio: float, margin: float, share_b: float) -> int:
    """Return the challenger entities that the product says an equal version takes."""
    counted = 100_000 * np.array([1 - share_b, share_b])
    found = entities_to_show(difference(counted, counted * ratio), OutcomeLimit("o", margin))
    assert found is not None
    return found


@pytest.mark.parametrize(("ratio", "margin", "share_b"), [(0.3, 0.1, 0.5), (0.05, 0.2, 0.5), (0.3, 0.1, 0.1)])
def test_an_equal_version_is_held_no_longer_than_is_said(ratio, margin, share_b):
    runs = 400 if FULL else 40
    asked = stated(ratio, margin, share_b)

    found = [several([ratio], margin, [1.0], share_b, seed) for seed in range(runs)]

    in_time = sum(one.entities is not None and one.entities <= asked + ENTITIES_A_LOOK for one in found)
    back = sum(one.is_taken_back for one in found)
    middle = median(one.entities or 3 * asked for one in found)
    sys.stdout.write(
        f"\nheld, {ratio:.0%} convert, margin {margin:.0%}, {share_b:.0%} (bar 95 %): {in_time} of {runs} within "
        f"{asked:,} entities, median {middle:,.0f}; {back} taken back (bar 1 %)"
    )
    assert in_time >= 0.95 * runs - sqrt(0.05 * runs)
    assert back <= 0.01 * runs


@pytest.mark.parametrize("change", [0.9, 0.87])
@pytest.mark.parametrize(("ratio", "share_b"), [(0.3, 0.5), (0.3, 0.1)])
def test_an_outcome_worse_than_its_margin_ends_no_step_that_it_holds(ratio, share_b, change):
    runs = 400 if FULL else 40

    found = [several([ratio], 0.1, [change], share_b, seed) for seed in range(runs)]

    ended = sum(one.entities is not None for one in found)
    back = sum(one.is_taken_back for one in found)
    sys.stdout.write(
        f"\nheld, worse, x{change}, margin 10 %, {share_b:.0%} (bar 5 %): {ended} of {runs} ended; {back} taken back"
    )
    assert ended <= 0.05 * runs


def test_one_of_three_outcomes_that_is_worse_than_its_margin_holds_the_step():
    runs = 200 if FULL else 20

    found = [several([0.3, 0.2, 0.4], 0.1, [1.0, 1.0, 0.9], 0.5, seed) for seed in range(runs)]

    ended = sum(one.entities is not None for one in found)
    sys.stdout.write(f"\nheld by one of three (bar 5 %): {ended} of {runs} ended")
    assert ended <= 0.05 * runs


def test_three_equal_outcomes_take_hardly_any_version_back():
    runs = 400 if FULL else 40

    found = [several([0.3, 0.05, 0.1], 0.2, [1.0, 1.0, 1.0], 0.5, seed) for seed in range(runs)]

    back = sum(one.is_taken_back for one in found)
    held = sum(one.entities is None and not one.is_taken_back for one in found)
    sys.stdout.write(f"\nthree equal outcomes (bar 1 %): {back} of {runs} taken back, {held} held")
    assert back <= 0.01 * runs
    assert held <= 0.05 * runs
