import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.statistics.suffix_sums import suffix_sums


@settings(max_examples=25)
@given(st.integers(0, 30), st.lists(st.integers(0, 40), max_size=10), st.integers(0, 1_000))
def test_suffix_sums_of_a_window_are_the_sums_from_there_on(windows, firsts, seed):
    values = np.random.default_rng(seed).normal(0, 1, (windows, 3))

    sums = suffix_sums(values, np.array(firsts, np.int64))

    assert sums == pytest.approx(np.array([values[first:].sum(axis=0) for first in firsts]).reshape(-1, 3))


def test_what_is_recent_is_not_what_is_left_of_large_numbers():
    values = np.array([[1e17], [1.0], [2.0]])

    assert suffix_sums(values, np.array([1, 2, 0])).ravel().tolist() == [3.0, 2.0, 1e17]
