"""A string has a longest length, in bytes of UTF-8, which the schema names or is 64 KiB."""

from typing import Any

import pytest

from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.features import MAX_STRING_BYTES
from understudy.core.schema.input_diff import input_differences
from understudy.core.schema.schema import InputSchema
from understudy.core.schema.treatments import Columns, assemble_treatments
from understudy.errors import InputInvalid, SchemaInvalid


def schema(**changes: Any) -> dict[str, Any]:
    return {"features": [{"name": "plan", "dtype": "string", **changes}]}


def problems_of(compiled: InputSchema, value: Any) -> list[tuple[str, str]]:
    try:
        compiled.assemble({"plan": value})
    except InputInvalid as refused:
        return [(one.pointer, one.detail) for one in refused.violations]
    return []


@pytest.mark.parametrize(("changes", "most"), [({}, MAX_STRING_BYTES), ({"max_bytes": 10}, 10)])
def test_the_longest_string_is_taken_and_the_next_one_is_not(changes, most):
    compiled = compile_input_schema(schema(**changes))

    assert problems_of(compiled, "x" * most) == []
    assert problems_of(compiled, "é" * (most // 2)) == []
    assert problems_of(compiled, "x" * (most + 1)) == [("/inputs/plan", f"is longer than {most:,} bytes")]
    assert problems_of(compiled, "é" * (most // 2) + "x") == [("/inputs/plan", f"is longer than {most:,} bytes")]


def test_each_element_of_a_list_is_measured():
    compiled = compile_input_schema(schema(shape=[2], max_bytes=3))

    assert problems_of(compiled, ["abc", "abcd"]) == [("/inputs/plan/1", "is longer than 3 bytes")]


def test_a_treatments_strings_are_measured_too():
    document = schema(per="treatment", max_bytes=3)
    document["features"].append({"name": "age", "dtype": "float32"})
    document["tensors"] = [{"name": "plans", "features": ["plan"]}, {"name": "ages", "features": ["age"]}]
    compiled = compile_input_schema(document)
    assert compiled.treatments is not None

    def assemble(*plans: str) -> None:
        treatments = Columns([str(number) for number in range(len(plans))], {"plan": list(plans)})
        assert compiled.treatments is not None
        assemble_treatments(compiled, compiled.treatments, {"age": 1}, None, treatments)

    assemble("abc", "")
    with pytest.raises(InputInvalid) as refused:
        assemble("abc", "abcd")

    assert [one.pointer for one in refused.value.violations] == ["/treatments/inputs/plan/1"]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_bytes": 0},
        {"max_bytes": 16_777_217},
        {"max_bytes": True},
        {"max_bytes": "10"},
        {"max_bytes": 10, "dtype": "float32"},
        {"max_bytes": 3, "default": "free"},
        {"max_bytes": 3, "enum": ["free"]},
    ],
)
def test_a_bound_that_cannot_be_is_named(changes):
    with pytest.raises(SchemaInvalid, match="plan"):
        compile_input_schema(schema(**changes))


def test_a_version_that_takes_shorter_strings_may_fail_callers():
    assert input_differences(schema(), schema(max_bytes=10)).possible == (
        "plan: fewer values are permitted than of the champion",
    )
    assert input_differences(schema(max_bytes=10), schema()).lines() == []
    assert input_differences(schema(enum=["free"]), schema(max_bytes=3)).possible != ()
    assert input_differences(schema(enum=["free"]), schema(max_bytes=4)).possible == ()
