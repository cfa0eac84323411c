from math import inf, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.statistics.incident_bound import (
    BOUND_PART,
    HALF_WINDOWS,
    LIFTED_PART,
    MAX_RUN_GAIN,
    RUN_WINDOWS,
    bounded_low,
    incident_bounded,
    lifted_windows,
)
from understudy.core.statistics.sequential_evidence import (
    FloatArray,
    Rates,
    log_rate_evidence,
    rate_gains,
    ratio_interval,
)

NEEDED = 5.3


def rates_of(bad_challenger: FloatArray | float, windows: int = 200, seed: int = 0) -> Rates:
    """Return 900 and 100 calls a window, of which 0.5 % and so many fail."""
    rng = np.random.default_rng(seed)
    champion, challenger = np.full(windows, 900.0), np.full(windows, 100.0)
    bad = rng.binomial(100, np.broadcast_to(bad_challenger, windows)).astype(float)
    return Rates(rng.binomial(900, 0.005, windows).astype(float), champion, bad, challenger)


def gains_of(bad_challenger: FloatArray | float, windows: int = 200, seed: int = 0) -> FloatArray:
    return rate_gains(rates_of(bad_challenger, windows, seed), 1.0, inf)


def share_in(windows: int, first: int, count: int, share: float = 1.0) -> FloatArray:
    found = np.full(windows, 0.005)
    found[first : first + count] = share
    return found


gains_arrays = st.integers(0, 60).flatmap(
    lambda count: st.lists(st.floats(-4, 6), min_size=2 * count, max_size=2 * count).map(
        lambda values: np.array(values).reshape(count, 2)
    )
)


@pytest.mark.deep
@settings(max_examples=60)
@given(gains_arrays)
def test_no_window_gains_by_the_bound_and_no_run_of_windows_where_it_holds_adds_more_than_it_may(gains):
    bounded = incident_bounded(gains, NEEDED)

    lifted = lifted_windows(gains)
    assert (bounded <= gains).all()
    assert (bounded[lifted] == np.minimum(gains[lifted], NEEDED * LIFTED_PART)).all()
    assert (bounded[~lifted] <= NEEDED * BOUND_PART + 1e-9).all()
    for end in range(1, len(gains) + 1):
        for length in range(1, min(RUN_WINDOWS, end) + 1):
            if not lifted[end - length : end].any():
                assert (bounded[end - length : end].sum(axis=0) <= MAX_RUN_GAIN + 1e-9).all()


@pytest.mark.deep
@settings(max_examples=60)
@given(gains_arrays, st.integers(1, 30))
def test_a_window_is_cut_by_what_came_before_it_alone(gains, count):
    assert (incident_bounded(gains[:count], NEEDED) == incident_bounded(gains, NEEDED)[:count]).all()


@pytest.mark.parametrize("count", [8, 9])
@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_two_minutes_of_failures_add_less_than_two_nats_however_many_they_are(count, share):
    bounded = incident_bounded(gains_of(share_in(200, 100, count, share)), NEEDED)

    added = np.maximum.accumulate(bounded[100:].cumsum(axis=0))[-1]
    assert log_rate_evidence(gains_of(share_in(200, 100, count, share))[100:]) > 8
    assert added.max() <= 2 * MAX_RUN_GAIN


def test_what_goes_on_lifts_the_bound_a_window_after_two_minutes_and_gains_twice_as_much_a_window():
    gains = gains_of(share_in(200, 100, 20))

    bounded = incident_bounded(gains, NEEDED)

    assert np.flatnonzero(lifted_windows(gains)).tolist() == list(range(109, 100 + 20 + HALF_WINDOWS))
    assert bounded[109:120].max(axis=1) == pytest.approx(NEEDED * LIFTED_PART)
    assert log_rate_evidence(bounded[100:]) > NEEDED


def test_the_first_sixteen_windows_lift_nothing():
    gains = gains_of(1.0, windows=30)

    assert np.flatnonzero(lifted_windows(gains)).tolist() == list(range(16, 30))
    assert not lifted_windows(gains[:16]).any()
    assert incident_bounded(gains[:0], NEEDED).shape == (0, gains.shape[1])


def test_equal_rates_make_evidence_no_more_often_than_they_should():
    alpha = 0.05
    needed = -log(alpha)

    def reached(seed: int) -> bool:
        bounded = incident_bounded(gains_of(0.005, windows=400, seed=seed), needed)
        return any(log_rate_evidence(bounded[:end]) >= needed for end in range(20, 400, 20))

    assert sum(reached(seed) for seed in range(100)) <= 100 * alpha


@pytest.mark.parametrize("first", [20, 100, 180])
def test_two_minutes_of_failures_leave_no_interval_that_looks_worse(first):
    rates = rates_of(share_in(200, first, 8, 0.3))
    low, high = ratio_interval(rates, 0.05)

    assert low > 1
    bounded = bounded_low(rates, low, NEEDED, 0.05)
    assert bounded < 1 < high


@pytest.mark.parametrize("windows", [200, 1_200])
def test_the_bound_of_a_challenger_that_is_worse_throughout_stays_as_it_is_or_nearly(windows):
    rates = rates_of(0.015, windows)
    low, _ = ratio_interval(rates, 0.05)

    assert low > 1.5
    assert 0.9 * low < bounded_low(rates, low, NEEDED, 0.05) <= low


def test_a_bound_is_the_largest_ratio_that_the_bounded_evidence_rejects():
    rates = rates_of(share_in(400, 200, 8, 0.3) + 0.003, 400)
    low, _ = ratio_interval(rates, 0.05)

    found = bounded_low(rates, low, NEEDED, 0.05)

    evidence = [
        log_rate_evidence(incident_bounded(rate_gains(rates, ratio, inf), NEEDED)) for ratio in (found, 1.05 * found)
    ]
    assert evidence[0] >= log(2 / 0.05) > evidence[1]
