from math import isnan, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.drift.subject_window import categorical_window, numeric_window
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram

rows = st.lists(st.tuples(st.floats(-1e3, 1e3) | st.just(nan), st.integers(0, ANALYSIS_BUCKETS - 1)))
named = st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.integers(0, ANALYSIS_BUCKETS - 1)))


@given(rows)
def test_a_numeric_window_counts_every_row_once_and_sums_those_with_a_value(drawn):
    values, buckets = (np.array([row[place] for row in drawn]) for place in (0, 1))

    window = numeric_window(60.0, values.astype(float), buckets.astype(int))

    present = [value for value, _ in drawn if not isnan(value)]
    assert sum(window.bucket_rows) == len(drawn)
    assert sum(window.bucket_nulls) == len(drawn) - len(present)
    assert sum(window.bucket_sums) == sum(round(value * 1e6) for value in present)
    assert abs(window.square_sum - sum(value**2 * 1e6 for value in present)) <= len(present) * 1e-6 * 1e6
    assert Histogram(window.cells) == Histogram.of(present)
    assert len(window.bucket_sums) == ANALYSIS_BUCKETS


@given(named)
def test_a_categorical_window_counts_every_row_once_in_its_bucket(drawn):
    window = categorical_window(60.0, [name for name, _ in drawn], np.array([home for _, home in drawn], dtype=int))

    for name in "abc":
        counts = window.categories.get(name, [0] * ANALYSIS_BUCKETS)
        assert [counts[bucket] for bucket in range(ANALYSIS_BUCKETS)] == [
            drawn.count((name, bucket)) for bucket in range(ANALYSIS_BUCKETS)
        ]
    assert sum(window.bucket_nulls) == sum(name is None for name, _ in drawn)
    assert sum(window.bucket_rows) == len(drawn)
