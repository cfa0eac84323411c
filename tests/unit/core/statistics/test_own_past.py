import numpy as np
import pytest

from understudy.core.statistics.own_past import DROPPED_UNITS, MIN_PAST, SPANS, beyond_own_past
from understudy.core.statistics.sequential_evidence import FloatArray

NEEDED = np.log(1 / (0.01 * 0.05))
TOLERATED, LEAST = np.log(1.1), np.log(1.3)
DAY = 2_880
"""Units."""


def units(count: int = DAY, spread: float = 0.15, wander: float = 0.0, seed: int = 0) -> FloatArray:
    """Return differences of half-minute means, which wander for five minutes."""
    rng = np.random.default_rng(seed)
    values, level, memory = rng.normal(0, spread, count), 0.0, np.exp(-0.1)
    for place in range(count):
        level = memory * level + rng.normal(0, wander * np.sqrt(2 * (1 - memory**2)))
        values[place] += level
    return values


def units_until_seen(values: FloatArray, onset: int) -> float:
    """Return how many units after the onset the evidence is there, looking after each."""
    for end in range(onset + 1, len(values) + 1):
        found = beyond_own_past(values[:end], TOLERATED, LEAST)
        if found is not None and found.log_evidence >= NEEDED:
            return end - onset
    return np.inf


@pytest.mark.parametrize(("factor", "minutes"), [(10.0, 5.0), (2.0, 15.0), (1.5, 60.0)])
def test_what_gets_slower_after_a_day_is_seen_within_minutes(factor, minutes):
    values = units(DAY + 240)
    values[DAY:] += np.log(factor)

    assert units_until_seen(values, DAY) / 2 <= minutes


def test_an_incident_of_two_minutes_is_not_seen_and_one_of_five_is():
    for length, is_seen in ((DROPPED_UNITS, False), (10, True)):
        values = units(DAY + 30)
        values[DAY : DAY + length] += np.log(10)

        assert (units_until_seen(values, DAY) < np.inf) == is_seen


@pytest.mark.deep
def test_pods_that_wander_say_nothing_and_ten_times_the_latency_on_them_is_still_seen():
    calm = units(DAY, wander=0.2)
    slow = np.append(units(DAY, wander=0.2), units(20, wander=0.2, seed=1) + np.log(10))

    assert units_until_seen(calm, DAY - 600) == np.inf
    assert units_until_seen(slow, DAY) <= 20


def test_below_what_is_asked_for_or_without_a_past_nothing_is_said():
    little = units(DAY + 240)
    little[DAY:] += np.log(1.25)
    short = units(SPANS[0] * (MIN_PAST + 1) - 1)

    assert units_until_seen(little, DAY) == np.inf
    assert beyond_own_past(short, TOLERATED, LEAST) is None
    assert beyond_own_past(short[:0], TOLERATED, LEAST) is None


def test_values_that_are_all_alike_say_nothing():
    found = beyond_own_past(np.full(DAY, 0.5), TOLERATED, LEAST)

    assert found is not None
    assert found.log_evidence <= 0


@pytest.mark.deep
def test_the_chances_of_all_moments_and_spans_add_up_to_one():
    past = np.arange(MIN_PAST, 10_000_000)

    shares = 1 / np.log2(past + 1) - 1 / np.log2(past + 2)

    # Each number of past statistics has as many moments as a span has units, and shares its part with them.
    assert shares.sum() < 1
