"""Values that callers write another way than the log: taken where nothing is lost, and else refused."""

from typing import Any

import pytest

from understudy.core.requests.infer_body import read_infer
from understudy.core.requests.row_json import read_row_json
from understudy.core.schema.compile import compile_input_schema
from understudy.errors import InputInvalid

SCHEMA = compile_input_schema(
    {
        "features": [
            {"name": "count", "dtype": "int64"},
            {"name": "is_new", "dtype": "bool"},
            {"name": "word", "dtype": "string"},
        ],
        "batch": True,
    }
)


def assembled(**changes: Any) -> Any:
    row = {"count": 1, "is_new": True, "word": "ja", **changes}
    return SCHEMA.assemble(read_row_json({"instances": [row]}, SCHEMA).request.rows[0]).row


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"count": 7.0}, {"count": 7}),
        ({"count": -(2.0**53) + 1}, {"count": 1 - 2**53}),
        ({"word": {"b64": "amE="}}, {}),
    ],
)
def test_the_same_value_in_other_words_is_taken(written, meant):
    assert assembled(**written) == assembled(**meant)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 9007199254740993.0},
        {"count": -9007199254740993.0},
        {"count": 1.5},
        {"is_new": 1},
        {"is_new": 0.0},
        {"word": {"b64": "AA=="}},
        {"word": {"b64": "/w=="}},
        {"word": {"b64": "ja"}},
    ],
)
def test_a_value_that_would_become_another_one_is_refused(changes):
    with pytest.raises(InputInvalid):
        assembled(**changes)


def test_0_and_1_of_a_tensor_of_numbers_are_its_booleans():
    schema = compile_input_schema(
        {
            "features": [{"name": "is_new", "dtype": "bool"}],
            "tensors": [{"name": "x", "dtype": "float32", "features": ["is_new"]}],
            "batch": True,
        }
    )

    rows = read_row_json({"instances": [{"x": [1.0]}, {"x": [0]}]}, schema).request.rows

    assert rows == [{"is_new": True}, {"is_new": False}]


def test_a_tensor_of_booleans_has_no_numbers():
    tensor = b'{"inputs":[{"name":"is_new","datatype":"BOOL","shape":[1],"data":[1]}]}'

    assert read_infer(tensor, None, SCHEMA).request.rows == [{"is_new": 1}]
