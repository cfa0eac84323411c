from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.features import feature_at, pointer_of
from understudy.core.schema.schema import Assembled
from understudy.core.schema.stored_features import assemble_without_unfit
from understudy.errors import FeaturesUnavailable, InputInvalid

SCHEMA = compile_input_schema(
    {
        "features": [
            {"name": "age", "dtype": "int8"},
            {"name": "income", "dtype": "int8", "source": "store", "min": 64},
            {"name": "visits", "dtype": "int8", "source": "store", "default": 5, "enum": [5, 6]},
        ]
    }
)
values: st.SearchStrategy[Any] = st.sampled_from([5, 6, 100, 127, 300, -1, 10**30, "x", None, True, [5], {}])
some = st.dictionaries(st.sampled_from(["age", "income", "visits", "odd"]), values)


def assembled(inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> Assembled:
    """Assemble as a call does."""
    try:
        return SCHEMA.assemble(inputs, stored)
    except InputInvalid as problem:
        return assemble_without_unfit(lambda usable: SCHEMA.assemble(inputs, usable), inputs, stored, problem)


@given(st.lists(st.text(), min_size=1).map(tuple))
def test_the_name_of_a_place_is_found_again(parts):
    assert feature_at(pointer_of(*parts)) == parts[0]
    assert feature_at("/treatments/1" + pointer_of(*parts)) is None


@given(some, some)
def test_whatever_is_stored_the_caller_is_told_of_its_own_values_alone(inputs, stored):
    try:
        SCHEMA.assemble({"age": 5, "income": 100, **inputs}, {})
        own: set[str] = set()
    except InputInvalid as problem:
        own = {one.pointer for one in problem.violations}
    own |= {f"/inputs/{name}" for name in ("age", "income") if name not in inputs and name not in stored}
    own |= {"/inputs/age"} if "age" not in inputs else set()

    try:
        found = assembled(inputs, {name: value for name, value in stored.items() if name != "age"})
    except InputInvalid as problem:
        assert problem.violations
        assert {one.pointer for one in problem.violations} <= own
    except FeaturesUnavailable as problem:
        assert "income" not in inputs
        assert "income" in stored
        assert "income" in problem.detail
    else:
        assert not own
        assert set(found.defaulted) <= {"visits"}
        assert found.row[2] == (bytes([5]) if found.defaulted else bytes([{**stored, **inputs}["visits"]]))


def test_what_says_nothing_of_the_store_is_told_as_it_was():
    with pytest.raises(InputInvalid) as told:
        assembled({"age": "x", "odd": 1}, {"income": 100, "visits": 5})

    assert [one.pointer for one in told.value.violations] == ["/inputs/age", "/inputs/odd"]
