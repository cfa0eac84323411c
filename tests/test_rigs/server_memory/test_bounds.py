"""When an agent's estimates of a model's memory are as near as they have to be."""

import pytest

from rigs.server_memory.__main__ import Load, Measured
from understudy.core.loading.memory import MEBIBYTE


def measured(first: float, second: float) -> Measured:
    """Return a model that took 100 MiB twice, of which so many were expected."""
    loads = [Load(int(expected * MEBIBYTE), 100 * MEBIBYTE, 100 * MEBIBYTE) for expected in (first, second)]
    return Measured("onnx", "forest", 80 * MEBIBYTE, loads)


@pytest.mark.parametrize(("first", "second"), [(50, 85), (200, 115), (100, 110)])
def test_half_and_twice_will_do_at_first_and_15_percent_after_one_load(first: float, second: float):
    assert measured(first, second).is_good
    assert "out of bounds" not in str(measured(first, second))


@pytest.mark.parametrize(("first", "second"), [(49, 100), (201, 100), (100, 84), (100, 116)])
def test_less_and_more_than_that_is_out_of_bounds(first: float, second: float):
    assert not measured(first, second).is_good
    assert "out of bounds" in str(measured(first, second))
