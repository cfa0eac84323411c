from math import inf

import numpy as np
import pytest

from understudy.core.statistics.mean_shift import Moments
from understudy.core.statistics.pod_noise import PodNoise
from understudy.core.statistics.sequential_evidence import FloatArray
from understudy.core.statistics.trend import MIN_WINDOWS, trend_of

SIGMA = 0.5
SECONDS: FloatArray = np.linspace(0, 585, 40)


def moments(rng: np.random.Generator, slope: float, calls: float, seconds: FloatArray = SECONDS) -> Moments:
    """Return windows whose challenger is 1.0 above the champion at first, and goes up by ``slope`` a second."""
    sides = []
    for number, shift in ((20 * calls, 0.0), (calls, 1.0 + slope * seconds)):
        counts = rng.poisson(number, len(seconds)).astype(float)
        values = [9 + d + SIGMA * rng.normal(0, 1, int(n)) for n, d in zip(counts, shift + 0 * seconds, strict=True)]
        sides += [counts, np.array([v.sum() for v in values]), np.array([v @ v for v in values])]
    return Moments(*sides)


@pytest.mark.deep
@pytest.mark.parametrize("calls", [2.0, 50.0])
def test_the_slope_is_the_true_one_and_its_error_what_it_scatters_by(calls):
    rng = np.random.default_rng(1)

    found = [trend_of(SECONDS, moments(rng, -0.001, calls)) for _ in range(300)]

    z = np.array([(one.slope + 0.001) / one.error for one in found if one is not None])
    assert len(z) == 300
    assert abs(z.mean()) < 0.2
    assert 0.85 < z.std() < 1.1  # the larger of two estimates, so rather too large an error than too small a one
    assert found[0] is not None
    assert found[0].level == pytest.approx(1.0 - 0.001 * SECONDS.mean(), abs=0.3)


def test_the_ends_are_those_of_the_line():
    trend = trend_of(SECONDS, moments(np.random.default_rng(1), -0.001, 5_000.0))

    assert trend is not None
    assert trend.seconds == SECONDS[-1]
    assert trend.ends == pytest.approx((1.0, 1.0 - 0.001 * SECONDS[-1]), abs=0.01)
    assert trend.z < -50


def test_few_windows_have_a_level_and_no_slope_and_none_have_nothing():
    few = MIN_WINDOWS - 1
    some = Moments(*(column[:few] for column in moments(np.random.default_rng(1), 0.0, 50.0)))

    trend = trend_of(SECONDS[:few], some)

    assert trend is not None
    assert (trend.slope, trend.error, trend.z) == (0.0, inf, 0.0)
    assert trend.level == pytest.approx(1.0, abs=0.1)
    assert trend_of(SECONDS[:few], some._replace(challenger=np.zeros(few))) is None


def test_windows_of_one_side_alone_change_nothing():
    whole = moments(np.random.default_rng(1), -0.001, 50.0)
    gaps = np.arange(40) % 3 == 0
    lacking = Moments(*(np.where(gaps, 0.0, column) if place >= 3 else column for place, column in enumerate(whole)))

    assert trend_of(SECONDS, lacking) == trend_of(SECONDS[~gaps], Moments(*(column[~gaps] for column in whole)))


def test_pods_that_wander_are_in_the_error():
    windows = moments(np.random.default_rng(1), -0.001, 50.0)

    calm, wandering = trend_of(SECONDS, windows), trend_of(SECONDS, windows, PodNoise(0.04, 10))

    assert calm is not None
    assert wandering is not None
    assert wandering.slope == calm.slope
    # Ten minutes are two blocks: their difference over five minutes has twice the variance of both sides' means.
    assert wandering.error**2 - calm.error**2 == pytest.approx(2 * 0.04 * 12 / (SECONDS[-1] / 300) / SECONDS[-1] ** 2)


def test_values_without_any_spread_on_a_line_are_no_division_by_zero():
    flat = Moments(*(np.full(10, value) for value in (2.0, 18.0, 162.0, 2.0, 20.0, 200.0)))

    trend = trend_of(SECONDS[:10], flat)

    assert trend is not None
    assert trend.z == pytest.approx(0.0)
