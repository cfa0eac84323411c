"""Rows of floats that are packed together are those that a struct packs one by one, and none beyond its bounds."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.float_rows import FloatRows

NUMBERS = st.sampled_from([-1.0, -0.0, 0.0, 0.1, 0.10000000149011612, 1.0, 1.5, 1e-45, 16_777_217.0, 9.2e18, 3.5e38])
BOUNDS = st.sampled_from([(-9.2e18, 9.2e18), (0.0, 1.0), (0.1, 0.1), (-1.0, 16_777_217.0)])


@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.sampled_from("fd"))
def test_they_are_packed_as_one_by_one(data, width, count, letter):
    bounds = data.draw(st.lists(BOUNDS, min_size=width, max_size=width))
    values = data.draw(st.lists(NUMBERS, min_size=width * count, max_size=width * count))
    rows = [values[start : start + width] for start in range(0, len(values), width)]
    are_good = all(
        least <= value <= greatest for row in rows for value, (least, greatest) in zip(row, bounds, strict=True)
    )

    found = FloatRows(letter, bounds).packed(values)

    assert found == ([struct.pack(f"<{width}{letter}", *row) for row in rows] if are_good else None)


@given(st.lists(st.floats(width=32), min_size=2, max_size=8).filter(lambda values: len(values) % 2 == 0))
def test_packed_rows_are_cut_where_each_number_is_within_its_bounds(values):
    content = struct.pack(f"<{len(values)}f", *values)
    are_good = all(0 <= one <= 1 for one in values[::2]) and all(abs(one) <= 9.2e18 for one in values[1::2])

    found = FloatRows("f", [(0.0, 1.0), (-9.2e18, 9.2e18)]).unpacked(content)

    assert found == ([content[start : start + 8] for start in range(0, len(content), 8)] if are_good else None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_within_no_bounds(value):
    rows = FloatRows("f", [(-9.2e18, 9.2e18)])

    assert rows.packed([1.0, value]) is None
    assert rows.unpacked(struct.pack("<2f", 1.0, value)) is None


def test_a_row_that_is_short_is_none():
    rows = FloatRows("f", [(0.0, 1.0), (0.0, 1.0)])

    assert rows.packed([0.5, 0.5, 0.5]) is None
    assert rows.unpacked(bytes(12)) is None
