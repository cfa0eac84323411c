from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.scenarios import SCENARIOS, Arrivals, Phase

phases = st.lists(st.builds(Phase, st.floats(0.5, 20), st.floats(0.1, 5)), min_size=1, max_size=4)
rates = st.floats(0.5, 500)


@given(phases, rates, st.integers(0, 20_000))
def test_requests_are_due_one_after_the_other(parts, rate, number):
    arrivals = Arrivals(parts, rate)

    dues = [arrivals.due_seconds(number + offset) for offset in range(3)]

    assert all(earlier < later for earlier, later in pairwise(dues))


@given(phases, rates, st.floats(0, 100))
def test_what_is_planned_is_what_is_due_before_the_end(parts, rate, seconds):
    arrivals = Arrivals(parts, rate)

    planned = arrivals.planned(seconds)

    assert planned == 0 or arrivals.due_seconds(planned - 1) < seconds
    assert arrivals.due_seconds(planned) >= seconds


@pytest.mark.parametrize(("name", "planned"), [("steady", 2_000), ("burst", 4_000), ("weight-flip", 2_000)])
def test_in_twenty_seconds_a_burst_asks_twice_as_much_as_the_others(name, planned):
    assert Arrivals(SCENARIOS[name].phases, 100).planned(20) == planned


def test_five_seconds_of_the_rate_and_five_of_three_times_as_much_follow_each_other():
    arrivals = Arrivals(SCENARIOS["burst"].phases, 100)

    by_second = [arrivals.planned(second + 1) - arrivals.planned(second) for second in range(20)]

    assert by_second == [*[100] * 5, *[300] * 5] * 2


def test_all_of_it_takes_about_two_minutes():
    assert 100 <= sum(scenario.seconds for scenario in SCENARIOS.values()) <= 115
