"""Power of an analysis: more traffic shows less, and none shows nothing."""

from math import inf

import numpy as np
import pytest

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.power.power import (
    minimum_detectable_error_ratio,
    minimum_detectable_latency_ratio,
    shows_error_ratio,
)
from understudy.core.statistics.detectable_effect import Exposure

POLICY = CanaryPolicy()


def an_exposure(challenger: float) -> Exposure:
    return Exposure(np.array([9.0 * challenger]), np.array([challenger]), 400)


def test_more_requests_show_a_smaller_regression_of_errors_and_of_latency():
    few, many = an_exposure(200), an_exposure(20_000)

    assert minimum_detectable_error_ratio(few, POLICY, 0.005) > minimum_detectable_error_ratio(many, POLICY, 0.005)
    assert minimum_detectable_latency_ratio(few, POLICY, 2.0) > minimum_detectable_latency_ratio(many, POLICY, 2.0)


def test_no_smaller_latency_is_promised_than_one_that_rolls_back_alone():
    assert minimum_detectable_latency_ratio(an_exposure(1e6), POLICY, 0.5) == POLICY.lone_latency_ratio


def test_without_requests_nothing_is_visible():
    nothing = an_exposure(0)

    assert minimum_detectable_error_ratio(nothing, POLICY, 0.005) == inf
    assert minimum_detectable_latency_ratio(nothing, POLICY, 0.5) == inf
    assert not shows_error_ratio(nothing, POLICY, 0.005, 2)


@pytest.mark.parametrize(("requests", "is_shown"), [(2_000, False), (8_000, True)])
def test_the_double_of_the_errors_takes_some_thousand_requests(requests, is_shown):
    assert shows_error_ratio(an_exposure(requests), POLICY, 0.005, 25) == is_shown
