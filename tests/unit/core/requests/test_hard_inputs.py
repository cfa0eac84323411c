"""Hard calls are what a schema permits, at its ends, and the same ones each time."""

from collections import Counter
from math import copysign

import pytest
from builders import a_version
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.hard_inputs import CALLS, hard_calls, hard_values

FEATURES = [
    {"name": "age", "dtype": "float32", "min": 0, "max": 130},
    {"name": "delta", "dtype": "float64"},
    {"name": "count", "dtype": "int64", "min": 0.5, "default": 7},
    {"name": "plan", "dtype": "string", "enum": ["free", "pro", "team"]},
    {"name": "note", "dtype": "string", "max_bytes": 9},
    {"name": "paid", "dtype": "bool"},
    {"name": "pixels", "dtype": "uint8", "shape": [2, 2]},
]
VERSION = a_version(input_schema={"features": FEATURES})


def test_the_ends_of_each_feature_are_among_the_rows():
    rows = [row for call in hard_calls(VERSION, 128) for row in call]

    seen = {name: {repr(row[name]) for row in rows if name in row} for name in VERSION.input_schema.by_name}

    assert {"0.0", "130.0", repr(2.0**-149), "1.0"} <= seen["age"]
    assert {"-0.0", "0.0", "-1.0", "1.0", repr(2.0**-1074)} <= seen["delta"]
    assert seen["count"] == {"1", "7"}
    assert seen["plan"] == {"'free'", "'team'"}
    assert {"''", "'xxxxxxxxx'", repr("\N{GREEK SMALL LETTER OMEGA}" * 4)} <= seen["note"]
    assert seen["paid"] == {"True", "False"}
    assert {"[[0, 0], [0, 0]]", "[[1, 1], [1, 1]]"} <= seen["pixels"]
    assert any("count" not in row for row in rows)


def test_a_least_value_above_zero_leaves_out_what_lies_below():
    (feature,) = a_version(
        input_schema={"features": [{"name": "a", "dtype": "float32", "min": 0.5}]}
    ).input_schema.features

    assert hard_values(feature) == [0.5, 1.0]


def test_a_zero_that_is_negative_is_one_of_the_values():
    feature = VERSION.input_schema.by_name["delta"]

    assert any(value == 0 and copysign(1, value) < 0 for value in hard_values(feature))


@pytest.mark.parametrize(
    ("most", "batch", "sizes"), [(128, True, {1, 7, 64, 128}), (20, True, {1, 7, 20}), (128, False, {1})]
)
def test_calls_have_one_row_seven_sixty_four_and_as_many_as_a_proxy_sends(most, batch, sizes):
    version = a_version(input_schema={"features": FEATURES, "batch": batch})

    counted = Counter(len(call) for call in hard_calls(version, most))

    assert set(counted) == sizes
    assert sum(counted.values()) == CALLS


_BOUND = st.none() | st.integers(-1000, 1000)


@pytest.mark.deep
@given(_BOUND, _BOUND, st.sampled_from(["float32", "float64", "int8", "int64", "uint8"]))
def test_every_hard_value_fits_its_schema(low, high, dtype):
    bounds = {name: value for name, value in (("min", low), ("max", high)) if value is not None}
    if low is not None and high is not None and low > high:
        return
    if dtype in ("int8", "uint8"):
        bounds = {name: min(abs(value), 100) for name, value in bounds.items()}
        bounds = dict(zip(bounds, sorted(bounds.values()), strict=True))
    version = a_version(input_schema={"features": [{"name": "a", "dtype": dtype, **bounds}]})

    for value in hard_values(version.input_schema.by_name["a"]):
        version.input_schema.assemble({"a": value})
