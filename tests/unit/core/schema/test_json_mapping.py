"""A declared JSON mapping: where inputs go, where the output is, and which declarations are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.json_mapping import EACH, parse_json_path, parse_mapping, takes_one_row
from understudy.errors import BadAnswer

PATH = {"path": "/score"}
NAMES = st.sampled_from(["a", "rows", "_x-1", "B2"])


def mapping(tensors: int = 2, *, batch: bool = True, **declared: Any) -> Any:
    return parse_mapping(PATH | declared, tensors=tensors, batch=batch)


ROWS = [(1, "x"), (2, "y")]
REQUESTS: dict[str, tuple[dict[str, Any], Any]] = {
    "a list": ({}, [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    "below names": ({"inputs": "$.data.rows[*]", "row": "list"}, {"data": {"rows": [[1, "x"], [2, "y"]]}}),
    "in a member of each row": (
        {"inputs": "$.rows[*]['the features']"},
        {"rows": [{"the features": {"a": 1, "b": "x"}}, {"the features": {"a": 2, "b": "y"}}]},
    ),
    "beside constants": (
        {"inputs": "$.data.rows[*]", "row": "list", "body": {"data": {"unit": "eur"}, "explain": False}},
        {"data": {"unit": "eur", "rows": [[1, "x"], [2, "y"]]}, "explain": False},
    ),
}


@pytest.mark.parametrize("how", REQUESTS)
def test_the_rows_of_a_request_are_where_the_mapping_says(how):
    declared, document = REQUESTS[how]

    assert mapping(**declared).request(("a", "b"), ROWS) == document


def test_without_a_list_a_request_has_one_row_beside_its_constants():
    found = mapping(inputs="$", body={"explain": False})

    assert not found.takes_rows
    assert found.request(("a", "b"), ROWS[:1]) == {"explain": False, "a": 1, "b": "x"}
    assert mapping(1, inputs="$.value", row="value").request(("a",), [(7,)]) == {"value": 7}


@given(st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3), st.lists(st.integers(), min_size=1, max_size=5))
def test_what_is_put_somewhere_by_a_path_is_found_there(outer, inner, values):
    place = "$" + "".join(f"['{name}']" for name in outer) + "[*]" + "".join(f".{name}" for name in inner)
    found = mapping(1, inputs=place, output=place, row="value")

    assert found.output_of(found.request(("x",), [(value,) for value in values])) == values


@pytest.mark.parametrize(
    ("output", "answer", "why"),
    [
        ("$.score", {}, r"nothing at \$\.score"),
        ("$.score", [1], r"nothing at \$\.score"),
        ("$.scores[2]", {"scores": [1, 2]}, r"nothing at \$\.scores\[2\]"),
        ("$.scores[0]", {"scores": {"0": 1}}, r"nothing at \$\.scores\[0\]"),
        ("$.rows[*].p", {"rows": {"p": 1}}, r"no list at \$\.rows"),
        ("$.rows[*].p", {"rows": [{"p": 1}, {}]}, r"nothing at \$\.rows\[\*\]\.p"),
    ],
)
def test_an_answer_without_the_output_is_refused_with_the_place(output, answer, why):
    with pytest.raises(BadAnswer, match=why):
        mapping(output=output).output_of(answer)


@pytest.mark.parametrize(
    "path",
    ["", "score", "$.", "$..a", "$[*][*]", "$.a[*].b[*]", "$[-1]", "$[1:2]", "$[?(@.a)]", "$.a b", 7, "$" + ".a" * 17],
)
def test_a_path_that_is_not_read_is_refused(path):
    with pytest.raises(ValueError, match=r"backend\.output must be a JSONPath"):
        parse_json_path("output", path)


def test_a_path_has_names_indices_and_one_list():
    assert parse_json_path("output", """$.a['b c']["d.e"][3][*]._f-g""") == ("a", "b c", "d.e", 3, EACH, "_f-g")


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"path": "score"}, "path"),
        ({"path": "/a b"}, "path"),
        ({"path": "/a\r\nhost: b"}, "path"),
        ({"ready_path": "//\n"}, "ready_path"),
        ({"inputs": "$.rows[0]"}, "has an index"),
        ({"row": "value"}, "single tensor"),
        ({"row": "table"}, "row must be"),
        ({"body": []}, "body must be an object"),
        ({"body": {"a": 1}}, "needs an object around"),
        ({"body": {"a": 1}, "inputs": "$", "row": "list"}, "needs an object around"),
    ],
)
def test_a_mapping_that_cannot_be_used_names_its_setting(declared, why):
    with pytest.raises(ValueError, match=why):
        mapping(**declared)


def test_a_list_of_rows_needs_a_schema_that_has_rows():
    with pytest.raises(ValueError, match=r"input_schema\.batch is false"):
        mapping(batch=False, inputs="$[*]")
    assert not mapping(batch=False).takes_rows


@pytest.mark.parametrize(
    ("protocol", "backend", "one"),
    [
        ("torchserve", {}, True),
        ("oip", {"inputs": "$"}, False),
        ("json", {}, False),
        ("json", {"inputs": "$.a"}, True),
        ("json", {"inputs": "$.rows[*]"}, False),
    ],
)
def test_a_call_has_one_row_where_its_protocol_or_its_mapping_says_so(protocol, backend, one):
    assert takes_one_row(protocol, backend) is one
