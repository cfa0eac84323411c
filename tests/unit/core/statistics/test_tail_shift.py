import numpy as np
import pytest
from scipy.stats import norm

from understudy.core.statistics.sequential_evidence import FloatArray
from understudy.core.statistics.tail_shift import (
    ENOUGH_CALLS,
    MAX_LOG,
    THRESHOLD_RATIO,
    explained_by_shift,
    recent_shift,
    tail_slope,
)

CALLS = 200.0


def windows(shift: FloatArray | float, challenger: float = CALLS, count: int = 60) -> tuple[FloatArray, FloatArray]:
    number = np.stack([np.full(count, 800.0), np.full(count, challenger)])
    means = np.stack([np.full(count, 9.2), 9.2 + np.broadcast_to(shift, count)])
    return number, number * means


def explained(number: FloatArray, total: FloatArray, slope: float) -> FloatArray:
    return explained_by_shift(recent_shift(number, total), slope)


MARGIN = np.log(THRESHOLD_RATIO)
"""What the challenger's threshold is higher by."""


@pytest.mark.parametrize("shift", [0.2, 0.25, 0.35])
def test_more_slow_answers_by_a_shift_of_all_of_them_are_explained(shift):
    """Lognormal latency with a spread of 0.5, of which 5 % are beyond the champion's threshold."""

    def beyond(moved: float) -> float:
        return float(norm.sf((0.8224 - moved) / 0.5))

    found = explained(*windows(shift), tail_slope(beyond(0.0), beyond(-MARGIN)))

    assert found[-1] == pytest.approx(beyond(shift - MARGIN) / beyond(0.0), rel=0.15)


def test_a_challenger_within_its_higher_threshold_needs_no_explanation_and_nothing_explains_everything():
    assert explained(*windows(-0.5), 3.0).tolist() == [1.0] * 60
    assert explained(*windows(0.18), 3.0).tolist() == [1.0] * 60
    assert explained(*windows(5.0), 3.0)[-1] == pytest.approx(np.exp(MAX_LOG))
    assert explained(*windows(0.5), tail_slope(10, 0)).tolist() == [1.0] * 60


def test_the_shift_is_that_of_the_last_two_minutes_if_they_have_calls_enough_and_of_ten_if_not():
    shift = np.where(np.arange(60) < 30, 0.0, 0.8)

    busy, quiet = (explained(*windows(shift, calls), 1.0) for calls in (CALLS, ENOUGH_CALLS / 40))

    assert np.log(busy[[29, 33, 37, 59]]) == pytest.approx(np.array([0.0, 0.4 - MARGIN, 0.8 - MARGIN, 0.8 - MARGIN]))
    assert np.log(quiet[[29, 49, 59]]) == pytest.approx(np.array([0.0, 0.4 - MARGIN, 0.6 - MARGIN]))


def test_without_calls_of_one_side_nothing_is_explained():
    number, total = windows(0.5)

    assert explained(number * [[1], [0]], total * [[1], [0]], 3.0).tolist() == [1.0] * 60
    assert explained(number[:, :0], total[:, :0], 3.0).tolist() == []
