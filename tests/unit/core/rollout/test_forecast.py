"""Forecasts: whether a ladder can end at today's traffic, what it would show, and which ladder can end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.durations import duration_words
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic
from understudy.core.rollout.forecast import Needs, forecast
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.plan_reader import read_plan

LADDER = NAMED_PLANS["default"]
NEEDS = Needs(entities=30, policy=CanaryPolicy())


def busy(entities: int, calls: int = 100, requests_per_second: float = 50.0) -> Traffic:
    return Traffic(requests_per_second, EntityCalls({calls: entities}), 0.005, 1.0, 0.5)


@pytest.mark.parametrize(
    ("entities", "met", "nearest"), [(300, 6, (15, 25, 50, 100)), (1_000, 20, (5, 10, 25, 50, 100))]
)
def test_too_few_entities_are_warned_of_with_the_ladder_that_can_end(entities, met, nearest):
    expected = forecast(LADDER, busy(entities), NEEDS)

    assert expected.seconds is None
    assert expected.nearest == nearest
    assert expected.warnings[0] == (
        f"this ladder cannot end at today's traffic: 2 % meets about {met} of {entities:,} entities, "
        "and the analysis asks for 30"
    )
    assert expected.warnings[1].endswith(f"--plan {','.join(map(str, nearest))}")
    assert not forecast(read_plan(",".join(map(str, nearest))), busy(entities), NEEDS).warnings


def test_the_time_that_is_told_of_another_ladder_is_what_its_own_command_takes():
    expected = forecast(NAMED_PLANS["fast"], busy(1_000), NEEDS)

    advice = expected.warnings[1]
    named = forecast(read_plan(advice.rpartition("--plan ")[2]), busy(1_000), NEEDS)
    assert named.seconds is not None
    assert advice.startswith(f"the nearest ladder that can end takes about {duration_words(named.seconds)}: --plan")
    assert named.warnings == ()


def test_a_ladder_that_half_of_the_draws_of_entities_end_is_warned_of_too():
    expected = forecast(LADDER, busy(1_550), NEEDS)

    assert expected.seconds is not None
    assert expected.steps[0].late_seconds is None
    assert expected.warnings[0].startswith("this ladder may not end at today's traffic")
    assert not forecast(LADDER, busy(2_500), NEEDS).warnings


def test_a_step_that_takes_longer_than_the_plan_lets_it_is_warned_of():
    expected = forecast(LADDER, busy(20_000, requests_per_second=1 / 6), NEEDS)

    assert expected.warnings[0].endswith("longer than the plan's maximum of 1 d a step")
    assert expected.nearest is None


def test_the_evidence_that_a_step_asks_for_may_take_longer_than_its_requests():
    needs = Needs(entities=30, policy=CanaryPolicy(detectable_ratio=1.5))

    expected = forecast(LADDER, busy(20_000, requests_per_second=5.0), needs)

    assert expected.steps[3].words.endswith("for enough requests to see 1.5x the errors")
    assert (expected.steps[3].seconds or 0) > 3_600


def test_unknown_entities_are_said_to_be_unknown_and_hold_nothing():
    expected = forecast(LADDER, Traffic(50.0), NEEDS)

    assert expected.seconds == 18_000
    assert expected.warnings == (
        "how many entities there are is not known, and each step asks for 30: the forecast takes them for granted",
    )


def test_each_step_shows_a_smaller_regression_than_the_one_before():
    steps = forecast(LADDER, busy(20_000), NEEDS).steps

    errors = [step.error_ratio or 0.0 for step in steps]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(2.96, abs=0.2)
    assert [step.latency_ratio for step in steps] == [1.3] * 5


def test_one_entity_that_makes_a_large_part_of_the_calls_is_warned_of():
    heavy = Traffic(50.0, EntityCalls({1: 92_000, 8_000: 1}), 0.005, 0.5, 0.5)

    [warning] = forecast(LADDER, heavy, NEEDS).warnings

    assert warning.startswith("one entity makes 8 % of the calls, 60 in 15 s: its side shows more errors")
    assert not forecast(LADDER, heavy._replace(requests_per_second=5.0), NEEDS).warnings


def test_a_plan_that_is_only_timed_is_not_warned_of():
    assert not forecast(NAMED_PLANS["rolling"], busy(10), NEEDS).warnings
    assert not forecast(NAMED_PLANS["blue_green"], busy(10), NEEDS).warnings


@pytest.mark.deep
@given(st.integers(1, 5_000), st.integers(1, 5_000), st.floats(0.1, 100))
def test_with_more_entities_no_step_takes_longer(one, other, rate):
    few, many = (forecast(LADDER, busy(count, 1_000, rate), NEEDS) for count in sorted((one, other)))

    for before, after in zip(few.steps, many.steps, strict=True):
        if before.seconds is not None:
            assert after.seconds is not None
