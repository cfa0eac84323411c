from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.hash_sample import is_whole, largest_hash


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_sample_holds_a_smaller_one_and_all_rows_are_the_largest(ratio, other):
    low, high = sorted((ratio, other))

    assert -(2**63) <= largest_hash(low) <= largest_hash(high) <= largest_hash(1.0) == 2**63 - 1


def test_only_the_sample_of_all_rows_is_whole():
    assert [is_whole(ratio) for ratio in (0.0, 0.5, 1.0)] == [False, False, True]
