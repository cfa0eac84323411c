from math import ceil, inf, log, nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.windows.histogram import GAMMA, MAX_SIZE, MIN_SIZE, Histogram, cell_of, cells_of, merged, value_of

WORST_RELATIVE_ERROR = (GAMMA - 1) / (GAMMA + 1)
ROUNDING = 1e-9
"""Logarithms of values up to 1e308 are exact to about 700 · 2**-53, far below this."""

finite = st.floats(-MAX_SIZE, MAX_SIZE)
latencies = st.integers(1, 3_600_000_000)
shares = st.floats(0, 1)


@settings(max_examples=50)
@given(finite)
def test_a_cell_stands_for_each_of_its_values_within_one_percent(value):
    stands_for = value_of(cell_of(value))

    assert abs(stands_for - value) <= max(MIN_SIZE, abs(value) * (WORST_RELATIVE_ERROR + ROUNDING))


@settings(max_examples=50)
@given(finite, finite)
def test_a_larger_value_never_has_a_smaller_cell(one, other):
    low, high = sorted((one, other))

    assert cell_of(low) <= cell_of(high)


@settings(max_examples=50)
@given(st.lists(latencies, min_size=1), shares)
def test_every_quantile_is_within_the_promised_two_percent(values, share_ratio):
    exact = sorted(values)[max(1, ceil(share_ratio * len(values))) - 1]

    found = Histogram.of(values).quantile(share_ratio)

    assert found == pytest.approx(exact, rel=0.02)


@pytest.mark.deep
@settings(max_examples=50)
@given(st.lists(st.lists(finite, max_size=8), max_size=5), st.randoms(use_true_random=False))
def test_merging_in_any_order_is_adding_all_values(parts, random):
    histograms = [Histogram.of(part) for part in parts]
    shuffled = histograms.copy()
    random.shuffle(shuffled)

    together = merged(shuffled)

    assert together == Histogram.of(value for part in parts for value in part)
    assert together.total == sum(map(len, parts))


def test_the_outermost_quantiles_are_the_smallest_and_the_largest_value():
    histogram = Histogram.of(range(1_000, 101_000, 1_000))

    assert histogram.quantile(0.0) == pytest.approx(1_000, rel=0.01)
    assert histogram.quantile(1.0) == pytest.approx(100_000, rel=0.01)


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6)), st.floats(-1e6, 1e6))
def test_how_many_values_reach_one_is_right_but_for_those_of_its_own_cell(values, least):
    found = Histogram.of(values).at_least(least)

    assert found == sum(value >= least or cell_of(value) == cell_of(least) for value in values)


def test_no_value_has_no_quantile():
    assert Histogram().quantile(0.5) is None
    assert Histogram().total == 0


def test_the_largest_and_the_smallest_values_have_cells_too():
    largest = nextafter(inf, 0)

    assert [cell_of(value) for value in (0.0, -0.0, MIN_SIZE / 2, -MIN_SIZE / 2)] == [0, 0, 0, 0]
    assert cell_of(MIN_SIZE) == 1
    assert cell_of(-largest) == -cell_of(largest) < 0
    assert value_of(cell_of(largest)) == pytest.approx(MAX_SIZE, rel=0.01)


@given(st.lists(finite, max_size=50))
def test_many_values_at_once_have_the_cells_that_each_has(values):
    assert cells_of(np.array(values, np.float64)).tolist() == [cell_of(value) for value in values]


def test_values_at_the_border_of_a_cell_have_the_cells_that_each_has_to_the_last_bit():
    borders = [MIN_SIZE * GAMMA**power for power in range(int(log(MAX_SIZE) / log(GAMMA)))]
    around = [near for border in borders for near in (nextafter(border, 0), border, nextafter(border, inf))]
    values = [*around, *(-value for value in around), 0.0, MIN_SIZE / 2, MAX_SIZE, nextafter(inf, 0)]

    assert cells_of(np.array(values)).tolist() == [cell_of(value) for value in values]
