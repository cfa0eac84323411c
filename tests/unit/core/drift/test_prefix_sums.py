import numpy as np

from understudy.core.drift.evidence import Spans
from understudy.core.drift.prefix_sums import prefix_sums, sums_over


def test_a_span_costs_one_subtraction_and_is_the_sum_of_its_windows():
    values = np.arange(30.0).reshape(10, 3)

    found = sums_over(prefix_sums(values), Spans(np.array([2, 0, 5]), np.array([4, 10, 5])))

    assert found.tolist() == [(values[2] + values[3]).tolist(), values.sum(axis=0).tolist(), [0, 0, 0]]
