"""Treatments as tensors, held against what one predict call for each of them would send."""

import struct
from typing import Any

import numpy as np
import pytest
from builders import a_version_row
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.schema import TreatmentLayout
from understudy.core.schema.tensors import Block, join_rows
from understudy.core.schema.treatments import Columns, Rows, Treatments, assemble_treatments
from understudy.errors import MAX_VIOLATIONS, InputInvalid, SchemaInvalid

FEATURES: dict[str, dict[str, Any]] = {
    "age": {"dtype": "float32"},
    "plan": {"dtype": "string", "default": "free"},
    "taste": {"dtype": "float64", "shape": [2]},
    "price": {"dtype": "float32", "min": 0, "max": 100, "per": "treatment"},
    "days": {"dtype": "int64", "min": -5, "default": 3, "per": "treatment"},
    "level": {"dtype": "int8", "per": "treatment"},
    "new": {"dtype": "bool", "default": False, "per": "treatment"},
    "kind": {"dtype": "string", "enum": ["mail", "push"], "per": "treatment"},
    "title": {"dtype": "string", "per": "treatment"},
    "place": {"dtype": "float64", "shape": [2, 1], "max": 7, "per": "treatment"},
    "single": {"dtype": "float32", "shape": [1], "default": [0.5], "per": "treatment"},
    "step": {"dtype": "int64", "enum": [1, 5], "per": "treatment"},
}
PLAIN: dict[str, Any] = {"features": [{"name": name, **feature} for name, feature in FEATURES.items()]}
MIXED: dict[str, Any] = {
    **PLAIN,
    "tensors": [
        {"name": "numbers", "dtype": "float32", "features": ["price", "age", "place", "days", "taste", "new"]},
        {"name": "small", "dtype": "uint8", "features": ["level", "step"]},
        {"name": "one", "features": ["single"]},
        {"name": "words", "dtype": "string", "features": ["kind", "plan", "title"], "shape": [3, 1]},
    ],
}
NESTED: dict[str, Any] = {
    **PLAIN,
    "tensors": [
        {"name": "user", "dtype": "float64", "features": ["age", "taste"]},
        {"name": "user_words", "features": ["plan"]},
        {"name": "numbers", "dtype": "float32", "features": ["price", "place", "days", "new", "single"]},
        {"name": "small", "dtype": "int16", "features": ["level", "step"]},
        {"name": "words", "dtype": "string", "features": ["kind", "title"]},
    ],
    "treatments": {"layout": "nested", "counts": "treatment_counts"},
}

floats = st.floats(-(2.0**30), 2.0**30) | st.integers(-(2**63), 2**64 - 1)
GOOD: dict[str, Any] = {
    "age": floats,
    "plan": st.text(max_size=3),
    "taste": st.lists(floats, min_size=2, max_size=2),
    "price": st.floats(0, 100) | st.integers(0, 100),
    "days": st.integers(-5, 2**63 - 1),
    "level": st.integers(0, 127),
    "new": st.booleans(),
    "kind": st.sampled_from(["mail", "push"]),
    "title": st.text(max_size=5),
    "place": st.lists(st.lists(st.floats(-9, 7), min_size=1, max_size=1), min_size=2, max_size=2),
    "single": st.floats(-9, 9) | st.lists(st.floats(-9, 9), min_size=1, max_size=1),
    "step": st.sampled_from([1, 5]),
}
anything = (
    st.none() | st.booleans() | floats | st.floats(1e38, 1e300) | st.text(max_size=2) | st.lists(floats, max_size=2)
)


def some(per: str, *, broken: bool = False) -> Any:
    """Values of the features of an entity or a treatment; ``broken`` ones may hold anything, or too little or much."""
    own = {name: f for name, f in FEATURES.items() if f.get("per", "entity") == per}
    required = {name: GOOD[name] | anything if broken else GOOD[name] for name, f in own.items() if "default" not in f}
    optional = {name: GOOD[name] | anything if broken else GOOD[name] for name, f in own.items() if "default" in f}
    if not broken:
        return st.fixed_dictionaries(required, optional=optional)
    return st.fixed_dictionaries({}, optional={**required, **optional, "other": anything})


def layout_of(schema: Any) -> TreatmentLayout:
    assert schema.treatments is not None
    return schema.treatments  # type: ignore[no-any-return]


def assembled(
    document: dict[str, Any], inputs: dict[str, Any], treatments: Treatments
) -> tuple[Block, tuple[str, ...]]:
    schema = compile_input_schema(document)
    return assemble_treatments(schema, layout_of(schema), inputs, None, treatments)


def rows_of(listed: list[dict[str, Any]]) -> Rows:
    return Rows([f"t{index}" for index in range(len(listed))], listed)


def columns_of(listed: list[dict[str, Any]]) -> Columns:
    names = sorted({name for one in listed for name in one})
    defaults = {name: feature.get("default") for name, feature in FEATURES.items()}
    values = {name: [one.get(name, defaults.get(name)) for one in listed] for name in names}
    return Columns([f"t{index}" for index in range(len(listed))], values)


@given(st.sampled_from([PLAIN, MIXED]), some("entity"), st.lists(some("treatment"), min_size=1, max_size=5))
def test_rows_are_what_a_predict_call_for_each_treatment_sends(document, inputs, listed):
    schema = compile_input_schema(document)
    one_by_one = [schema.assemble({**inputs, **one}).row for one in listed]

    block, _ = assembled(document, inputs, rows_of(listed))

    assert block.contents == join_rows(one_by_one)
    assert block.shapes == tuple((len(listed), *spec.shape) for spec in schema.tensors)


@pytest.mark.deep
@given(st.sampled_from([PLAIN, MIXED, NESTED]), some("entity"), st.lists(some("treatment"), min_size=1, max_size=5))
def test_rows_and_columns_mean_the_same(document, inputs, listed):
    assert assembled(document, inputs, rows_of(listed)) == assembled(document, inputs, columns_of(listed))


@given(some("entity"), st.lists(some("treatment"), min_size=1, max_size=5))
def test_nested_treatments_lie_beside_the_entity_in_the_order_of_their_features(inputs, listed):
    schema = compile_input_schema(NESTED)
    one_by_one = [schema.assemble({**inputs, **one}).row for one in listed]
    count = len(listed)

    block, _ = assembled(NESTED, inputs, rows_of(listed))

    user, user_words, *own, counts = block.contents
    assert (user, user_words) == one_by_one[0][:2]
    assert tuple(own) == join_rows([row[2:-1] for row in one_by_one])
    assert counts == struct.pack("<q", count)
    assert block.shapes == ((1, 3), (1, 1), (1, count, 6), (1, count, 2), (1, count, 2), (1,))


def test_a_predict_call_to_a_nested_version_has_one_treatment():
    schema = compile_input_schema(NESTED)

    specs = {spec.name: spec for spec in schema.tensors}

    assert [specs[name].shape for name in ("user", "numbers", "treatment_counts")] == [(3,), (1, 6), ()]


@pytest.mark.deep
@given(
    st.sampled_from([PLAIN, MIXED]),
    some("entity", broken=True),
    st.lists(some("treatment", broken=True) | some("treatment"), min_size=1, max_size=4),
)
def test_what_predict_refuses_is_refused_and_nothing_else(document, inputs, listed):
    schema = compile_input_schema(document)
    refused: set[int] = set()
    for index, one in enumerate(listed):
        mine = {name: value for name, value in inputs.items() if name != "other"}
        try:
            schema.assemble({**mine, **one})
        except InputInvalid:
            refused.add(index)

    try:
        assembled(document, inputs, rows_of(listed))
    except InputInvalid as problem:
        found = [violation.pointer for violation in problem.violations]
        named = {int(pointer.split("/")[2]) for pointer in found if pointer.startswith("/treatments/")}
        assert named <= refused
        assert refused or "/inputs/other" in found
    else:
        assert not refused
        assert "other" not in inputs


@given(st.lists(some("treatment", broken=True) | some("treatment"), min_size=1, max_size=4))
def test_both_forms_find_the_same_fault_with_the_same_values(listed):
    inputs = {"age": 1, "taste": [1, 2]}
    complete = [{name: one.get(name, FEATURES[name].get("default")) for name in FEATURES if "per" in FEATURES[name]}
                for one in listed]  # fmt: skip

    def places(treatments: Treatments) -> set[tuple[frozenset[str], str]]:
        try:
            assembled(MIXED, inputs, treatments)
        except InputInvalid as problem:
            return {(frozenset(v.pointer.split("/")), v.detail) for v in problem.violations}
        return set()

    assert places(rows_of(complete)) == places(columns_of(complete))


@pytest.mark.parametrize(
    ("form", "change", "pointer", "says"),
    [
        (rows_of, {"price": 101}, "/treatments/1/inputs/price", "above the greatest"),
        (columns_of, {"price": 101}, "/treatments/inputs/price/1", "above the greatest"),
        (rows_of, {"price": "1.5"}, "/treatments/1/inputs/price", "expected a number, got a string"),
        (columns_of, {"price": True}, "/treatments/inputs/price/1", "expected a number"),
        (columns_of, {"price": None}, "/treatments/inputs/price/1", "expected a number, got null"),
        (columns_of, {"level": 1.5}, "/treatments/inputs/level/1", "got a number with a fraction"),
        (rows_of, {"place": [[1], ["x"]]}, "/treatments/1/inputs/place/1/0", "expected a number"),
        (columns_of, {"place": [[1], [8]]}, "/treatments/inputs/place/1/1/0", "above the greatest"),
        (columns_of, {"place": [[1]]}, "/treatments/inputs/place/1", "expected 2 elements, got 1"),
        (columns_of, {"level": 300}, "/treatments/inputs/level/1", "does not fit into uint8"),
        (rows_of, {"level": -1}, "/treatments/1/inputs/level", "does not fit into uint8"),
        (rows_of, {"level": 2**63}, "/treatments/1/inputs/level", "does not fit into uint8"),
        (columns_of, {"kind": "sms"}, "/treatments/inputs/kind/1", "expected one of mail, push"),
        (rows_of, {"age": 3}, "/treatments/1/inputs/age", "belongs to the entity"),
        (rows_of, {"a/b": 3}, "/treatments/1/inputs/a~1b", "leave it out"),
        (columns_of, {"other": 3}, "/treatments/inputs/other", "leave it out"),
    ],
)
def test_each_problem_has_its_place(form, change, pointer, says):
    good = {"price": 1, "level": 1, "kind": "mail", "title": "a", "place": [[1], [2]], "step": 5}

    with pytest.raises(InputInvalid) as refused:
        assembled(MIXED, {"age": 1, "taste": [1, 2]}, form([good, {**good, **change}]))

    (violation,) = refused.value.violations
    assert violation.pointer == pointer
    assert says in violation.detail


def test_a_number_that_its_tensor_cannot_hold_is_refused_where_it_stands():
    good = {"price": 1, "level": 1, "kind": "mail", "title": "a", "place": [[1], [2]], "step": 5}

    with pytest.raises(InputInvalid) as refused:
        assembled(MIXED, {"age": 1, "taste": [1, 2]}, rows_of([good, {**good, "place": [[1], [-1e39]]}]))

    assert [tuple(one) for one in refused.value.violations] == [
        ("/treatments/1/inputs/place", "does not fit into fp32")
    ]


@pytest.mark.parametrize(
    ("inputs", "pointer", "says"),
    [
        ({"age": 1, "taste": [1, 2], "price": 4}, "/inputs/price", "belongs to the treatments"),
        ({"taste": [1, 2]}, "/inputs/age", "missing"),
        ({"age": 1, "taste": [1, 2], "other": 4}, "/inputs/other", "leave it out"),
    ],
)
def test_the_entitys_problems_are_named_as_in_a_predict_call(inputs, pointer, says):
    good = {"price": 1, "level": 1, "kind": "mail", "title": "a", "place": [[1], [2]], "step": 5}

    with pytest.raises(InputInvalid) as refused:
        assembled(MIXED, inputs, rows_of([good]))

    assert [one.pointer for one in refused.value.violations] == [pointer]
    assert says in refused.value.violations[0].detail


@pytest.mark.parametrize(
    ("values", "says"),
    [({}, "missing; expected a list of 2 values"), ({"price": [1]}, "got 1"), ({"price": 7}, "a list of 2 values")],
)
def test_a_column_must_have_a_value_for_each_treatment(values, says):
    schema = {"features": [{"name": "price", "dtype": "float32", "per": "treatment"}]}

    with pytest.raises(InputInvalid) as refused:
        assembled(schema, {}, Columns(["a", "b"], values))

    (violation,) = refused.value.violations
    assert violation.pointer == "/treatments/inputs/price"
    assert says in violation.detail


def test_a_thousand_problems_are_named_at_most():
    schema = {"features": [{"name": name, "dtype": "float32", "per": "treatment"} for name in ("a", "b")]}
    listed = [{"a": "x", "b": "x", f"unknown{n}": 1} for n in range(2_000)]

    with pytest.raises(InputInvalid, match="1,000 problems or more") as refused:
        assembled(schema, {}, rows_of(listed))

    assert len(refused.value.violations) == MAX_VIOLATIONS


PLAIN_PRICE = [{"name": "price", "dtype": "float32", "per": "treatment"}]
LONG: dict[str, Any] = {
    "features": [{"name": "taste", "dtype": "float32", "shape": [4_000], "default": [0] * 4_000}, *PLAIN_PRICE]
}
NESTED_LONG = {**LONG, "treatments": {"layout": "nested"}}
TEXT = {"features": [{"name": "text", "dtype": "string"}, *PLAIN_PRICE]}


def test_a_call_that_would_be_too_long_once_the_entity_is_repeated_is_refused():
    few, many = [Columns([f"t{n}" for n in range(count)], {"price": [1] * count}) for count in (999, 1_000)]

    with pytest.raises(InputInvalid, match="1 problem") as refused:
        assembled(LONG, {}, many)

    (violation,) = refused.value.violations
    assert violation.pointer == "/treatments"
    assert violation.detail.startswith("1,000 of them have 4,001,000 elements")
    assert assembled(LONG, {}, few)[0].shapes == ((999, 4_000), (999,))
    assert assembled(NESTED_LONG, {}, many)[0].shapes == ((1, 4_000), (1, 1_000))


def test_a_long_text_is_not_repeated_for_every_treatment():
    many = Columns([f"t{n}" for n in range(1_000)], {"price": [1] * 1_000})

    with pytest.raises(InputInvalid) as refused:
        assembled(TEXT, {"text": "x" * 4_001}, many)

    assert refused.value.violations[0].pointer == "/inputs"
    assert len(assembled(TEXT, {"text": "x" * 4_000}, many)[0].contents[0]) == 4_004_000


def test_whole_numbers_that_a_float_rounds_are_held_against_their_bounds_exactly():
    schema = {"features": [{"name": "n", "dtype": "float64", "max": 2**53, "per": "treatment"}]}

    with pytest.raises(InputInvalid, match="1 problem"):
        assembled(schema, {}, Columns(["a", "b"], {"n": [1, 2**53 + 1]}))
    block, _ = assembled(schema, {}, Columns(["a", "b"], {"n": [1, 2**53]}))

    assert np.frombuffer(block.contents[0], "<f8").tolist() == [1, 2**53]


def a_version(schema: dict[str, Any]) -> ModelVersion:
    return version_from_row("offers", a_version_row("1", input_schema=schema))


A, B = {"name": "a", "dtype": "float32"}, {"name": "b", "dtype": "float32", "per": "treatment"}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"features": [A], "treatments": {}}, 'no feature has "per": "treatment"'),
        ({"features": [{**B, "per": "item"}]}, "expected entity or treatment"),
        ({"features": [{**B, "source": "store"}]}, "the store has values of entities"),
        ({"features": [B], "batch": False}, "treatments need a batch dimension"),
        ({"features": [B], "treatments": []}, "expected an object"),
        ({"features": [B], "treatments": {"form": 1}}, "unknown field 'form'"),
        ({"features": [B], "treatments": {"layout": "ragged"}}, "expected rows or nested"),
        ({"features": [B], "treatments": {"counts": "n"}}, "with the layout nested"),
        ({"features": [B], "treatments": {"layout": "nested", "counts": ""}}, "the name of an input"),
        ({"features": [B], "treatments": {"layout": "nested", "counts": "b"}}, "another input named 'b'"),
        (
            {
                "features": [A, B],
                "tensors": [{"name": "x", "features": ["a", "b"]}],
                "treatments": {"layout": "nested"},
            },
            "x holds features of the entity and of treatments",
        ),
    ],
)
def test_a_schema_whose_treatments_cannot_be_sent_is_refused(schema, says):
    with pytest.raises(SchemaInvalid, match=says):
        a_version(schema)
