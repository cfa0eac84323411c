"""Outcomes that hold each step: when they can be shown to be within their margins."""

from math import sqrt

import numpy as np
import pytest

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic
from understudy.core.rollout.forecast import Needs, RolloutForecast, forecast
from understudy.core.rollout.outcome_forecast import (
    Counted,
    NeededOutcome,
    OutcomeBefore,
    counted_by,
    is_shown,
    needed_outcome,
)
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.plan_reader import read_plan

LADDER = NAMED_PLANS["default"]
MANY = EntityCalls({1: 150_000, 2: 20_000})
CONVERTED = OutcomeLimit("converted", 0.1, holds_step=True)
OFTEN, SELDOM = OutcomeBefore(0.3, 0.21), OutcomeBefore(0.02, 0.0196)


def expected(
    *outcomes: NeededOutcome, entities: EntityCalls | None = MANY, rate: float = 50.0, ladder: str = ""
) -> RolloutForecast:
    traffic = Traffic(rate, entities, 0.005, 1.0, 0.5)
    plan = read_plan(ladder) if ladder else LADDER
    return forecast(plan, traffic, Needs(entities=30, policy=CanaryPolicy(), outcomes=outcomes))


@pytest.mark.parametrize(
    ("share", "margin", "challenger_entities"),
    [(0.02, 0.1, 229_000), (0.05, 0.2, 17_300), (0.3, 0.05, 42_000), (0.3, 0.2, 2_100)],
)
def test_what_it_takes_at_an_even_split_is_what_the_page_says(share, margin, challenger_entities):
    limit = CONVERTED._replace(limit_ratio=margin)

    needed = needed_outcome(limit, OutcomeBefore(share, share * (1 - share)))

    assert needed.entities == pytest.approx(challenger_entities, rel=0.02)


def test_the_bound_is_said_on_the_side_that_is_worse():
    assert needed_outcome(CONVERTED, OFTEN).bound == "at least 0.9x"
    assert needed_outcome(CONVERTED._replace(lower_is_better=True), OFTEN).bound == "at most 1.1x"


def test_of_an_outcome_whose_mean_is_zero_no_number_of_entities_is_enough():
    never = needed_outcome(CONVERTED, OutcomeBefore(0.0, 1.0))

    assert never.entities is None
    assert not is_shown(never, Counted(1e9, 1e9, 1e9))
    assert "which no number of entities shows" in expected(never).steps[0].words


def test_entities_count_when_their_time_is_over_and_for_the_version_that_they_met_first():
    steady = EntityCalls({1: 1_000_000})
    parts = [(0.1, 1_000.0), (0.5, 1_000.0)]

    counted = counted_by(parts, steady, 10.0, within_seconds=500.0)

    assert counted.challenger == pytest.approx(0.1 * 10_000 + 0.5 * 5_000)
    assert counted.champion == pytest.approx(0.9 * 10_000 + 0.5 * 5_000)
    assert counted_by(parts, steady, 10.0, within_seconds=3_000.0) == Counted(0.0, 0.0, 0.0)


def test_entities_of_uneven_steps_tell_as_much_as_the_weighted_comparison_of_both_arms():
    """The variance of the difference of means whose entities weigh as the other arm's share when they came."""
    parts = [(0.1, 1_000.0), (0.5, 1_000.0)]
    counted = counted_by(parts, EntityCalls({1: 1_000_000}), 10.0, within_seconds=0.0)

    shares, new = np.array([0.1, 0.5]), np.array([10_000, 10_000])
    variances = [
        (weight**2 * number).sum() / ((weight * number).sum()) ** 2
        for weight, number in ((shares, (1 - shares) * new), (1 - shares, shares * new))
    ]

    assert sqrt(2 / counted.equal_arms) == pytest.approx(sqrt(sum(variances)))


def test_a_step_waits_until_an_outcome_is_shown_and_later_ones_go_on_with_what_was_counted():
    often = needed_outcome(CONVERTED, OFTEN)

    steps = expected(often, ladder="10,50,100").steps

    assert steps[0].words.startswith("waits ")
    assert "for outcome converted to be shown at least 0.9x, with " in steps[0].words
    assert steps[0].words.endswith(" challenger entities")
    assert (steps[0].seconds or 0) > 3_600
    assert "converted" not in steps[1].words


def test_a_ladder_that_an_outcome_holds_for_longer_than_the_plan_lets_it_is_warned_of():
    found = expected(needed_outcome(CONVERTED, SELDOM))

    assert found.warnings[0].startswith("this ladder cannot end at today's traffic: 2 % waits ")
    assert "for outcome converted to be shown at least 0.9x" in found.warnings[0]


def test_with_as_few_entities_as_there_are_it_is_said_how_many_it_takes():
    found = expected(needed_outcome(CONVERTED, OFTEN), entities=EntityCalls({200: 3_000}))

    assert found.seconds is None
    assert found.warnings[0].endswith(
        "2 % waits more than 30 d for outcome converted to be shown at least 0.9x: that takes about 4,741 challenger "
        "entities, and the last day's calls have 3,000"
    )


def test_what_is_not_known_holds_nothing_and_is_said():
    traffic = Traffic(50.0, None, 0.005, 1.0, 0.5)
    needs = Needs(policy=CanaryPolicy(), outcomes=(needed_outcome(CONVERTED, OFTEN),), unknown_outcomes=("refunds",))

    found = forecast(LADDER, traffic, needs)

    assert found.seconds == 18_000
    assert found.warnings == (
        "outcome refunds: what it comes to for the champion is not known, so neither is how long it holds each step",
        (
            "outcome converted to be shown at least 0.9x: how many entities there are is not known, so neither is how "
            "long it holds each step"
        ),
    )


def test_a_plan_that_is_only_timed_waits_for_no_outcome():
    needs = Needs(policy=CanaryPolicy(), outcomes=(needed_outcome(CONVERTED, SELDOM),))

    assert not forecast(NAMED_PLANS["rolling"], Traffic(50.0, MANY), needs).warnings
