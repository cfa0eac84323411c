import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.drift import numeric_baseline

from understudy.core.drift.baseline import CategoricalBaseline, NumericBaseline
from understudy.core.drift.distributions import BINS, shapes_of, shares_of
from understudy.core.drift.subject_window import categorical_window, numeric_window

values = st.lists(st.floats(-1e5, 1e5, allow_subnormal=False), min_size=1, max_size=50)


@given(values, values)
def test_every_value_is_drawn_once(before, now):
    window = numeric_window(0.0, np.array(now), np.zeros(len(now), dtype=np.int64))

    found = shapes_of(numeric_baseline(np.array(before)), [window])

    assert found is not None
    assert len(found.edges) == BINS + 1
    assert sum(found.baseline) == pytest.approx(len(before))
    assert sum(found.now) == pytest.approx(len(now))


def test_a_smooth_distribution_is_drawn_without_gaps():
    drawn = np.random.default_rng(2).normal(0.9, 0.05, 50_000)

    found = shapes_of(numeric_baseline(drawn), [numeric_window(0.0, drawn, np.zeros(50_000, dtype=np.int64))])

    assert found is not None
    middle = np.array(found.baseline[8:-8])
    assert middle.min() > 0
    assert np.abs(np.diff(middle)).max() < 0.25 * middle.max()


def test_nothing_is_drawn_of_a_baseline_without_a_distribution_or_without_values():
    window = numeric_window(0.0, np.array([1.0]), np.zeros(1, dtype=np.int64))

    assert shapes_of(NumericBaseline(1.0, 1.0), [window]) is None
    assert shapes_of(numeric_baseline(np.array([1.0])), []) is None


def test_the_category_that_moved_most_comes_first_and_new_ones_are_there():
    window = categorical_window(0.0, ["US"] * 4 + ["BR"] * 5 + ["XX"], np.zeros(10, dtype=np.int64))

    found = shares_of(CategoricalBaseline({"US": 0.6, "BR": 0.2}), [window])

    assert [tuple(one) for one in found] == [("BR", 0.2, 0.5), ("US", 0.6, 0.4), ("XX", 0.0, 0.1)]
