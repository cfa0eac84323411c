import struct
from dataclasses import replace
from typing import Any

import pytest
from builders import an_input_schema
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.prediction_log.call_slices import ROUTED
from understudy.core.schema.codec import split_bytes_elements
from understudy.core.schema.compile import MAX_FEATURES, compile_input_schema, compile_output_schema
from understudy.core.schema.schema import InputSchema, single_values
from understudy.core.schema.tensors import Datatype
from understudy.errors import InputInvalid, SchemaInvalid

numbers = st.floats(-(2.0**100), 2.0**100, width=32)


def pointers(problem: InputInvalid) -> list[str]:
    return [violation.pointer for violation in problem.violations]


@given(numbers, numbers)
def test_features_lie_side_by_side_in_the_order_the_tensor_names(age, income):
    schema = compile_input_schema(
        an_input_schema(tensors=[{"name": "input", "dtype": "float32", "features": ["income", "age"]}])
    )

    assembled = schema.assemble({"age": age, "income": income})

    assert assembled.row == (struct.pack("<2f", income, age),)


@given(numbers, numbers)
def test_the_hash_does_not_depend_on_the_order_of_the_keys(age, income):
    schema = compile_input_schema(an_input_schema())

    one = schema.assemble({"age": age, "income": income})
    other = schema.assemble({"income": income, "age": age})

    assert one.digest == other.digest
    assert len(one.digest) == 64


def test_a_number_written_as_an_integer_is_the_same_input():
    schema = compile_input_schema(an_input_schema())

    assert schema.assemble({"age": 41, "income": 2}) == schema.assemble({"age": 41.0, "income": 2.0})


def test_every_violation_is_reported_at_once_with_its_pointer():
    schema = compile_input_schema(
        {
            "features": [
                {"name": "age", "dtype": "float32", "min": 0, "max": 130},
                {"name": "plan", "dtype": "string", "enum": ["free", "pro"]},
                {"name": "visits", "dtype": "int64"},
                {"name": "clicks", "dtype": "float32", "shape": [2, 2]},
                {"name": "a/b~c", "dtype": "bool"},
            ]
        }
    )

    with pytest.raises(InputInvalid) as refused:
        schema.assemble({"age": 131, "plan": "prro", "visits": 1.5, "clicks": [[1, 2], [3, "x"]], "nonsense": 1})

    assert set(pointers(refused.value)) == {
        "/inputs/a~1b~0c",
        "/inputs/age",
        "/inputs/clicks/1/1",
        "/inputs/nonsense",
        "/inputs/plan",
        "/inputs/visits",
    }
    assert refused.value.detail == "6 problems"
    assert all("prro" not in violation.detail for violation in refused.value.violations)


@pytest.mark.parametrize("feature", [{"dtype": "int32", "min": 0, "max": 9}, {"dtype": "uint8"}, {"dtype": "int64"}])
def test_a_whole_float_is_the_integer_that_it_says(feature):
    schema = compile_input_schema({"features": [{"name": "x", **feature}, {"name": "y", **feature, "shape": [2]}]})

    assert schema.assemble({"x": 3.0, "y": [1.0, 2]}) == schema.assemble({"x": 3, "y": [1, 2]})
    assert single_values(schema.features, {"x": 3.0, "y": [1.0, 2]}) == {"x": 3}


@pytest.mark.parametrize(
    ("also", "why"),
    [
        ("rank", "expected a list"),
        ([""], "expected a list"),
        ([1], "expected a list"),
        (["rank", "rank"], "named once"),
        (["p"], "named once"),
        ([f"o{number}" for number in range(17)], "at most 16"),
    ],
)
def test_outputs_beside_the_judged_one_are_few_and_named_once(also, why):
    assert compile_output_schema({"tensor": "p", "also": ["rank", "raw"]}).also == ("rank", "raw")
    with pytest.raises(SchemaInvalid, match=why):
        compile_output_schema({"tensor": "p", "also": also})
    with pytest.raises(SchemaInvalid, match="must name the output that is judged"):
        compile_output_schema({"also": ["rank"]})


def test_a_default_and_a_stored_value_may_be_whole_floats_too():
    feature = {"name": "x", "dtype": "int64"}
    by_default = compile_input_schema({"features": [{**feature, "default": 7.0}]})
    stored = compile_input_schema({"features": [{**feature, "source": "store"}]})

    assert by_default.assemble({}) == by_default.assemble({"x": 7})
    assert by_default.features[0].default == 7
    assert type(by_default.features[0].default) is int
    assert stored.assemble({}, {"x": 7.0}) == stored.assemble({}, {"x": 7})
    assert single_values(stored.features, {}, {"x": 7.0}) == {"x": 7}


@pytest.mark.parametrize(
    ("dtype", "value", "found"),
    [
        ("int64", 1.5, "a number with a fraction"),
        ("int64", 2.0**53, "a float of 2^53 or more, which may stand for another number"),
        ("int64", True, "true or false"),
        ("float32", "1.5", "a string"),
        ("float32", None, "null"),
        ("float32", [1.0], "a list"),
        ("bool", 1, "an integer"),
        ("string", 1.0, "a number"),
        ("string", {}, "an object"),
    ],
)
def test_a_refused_value_is_told_by_the_type_that_it_had_and_is_not_repeated(dtype, value, found):
    schema = compile_input_schema({"features": [{"name": "x", "dtype": dtype}]})

    with pytest.raises(InputInvalid) as refused:
        schema.assemble({"x": value})

    (violation,) = refused.value.violations
    assert violation.detail.startswith("expected ")
    assert violation.detail.endswith(f", got {found}")


def test_what_is_no_list_is_told_by_its_type_too():
    schema = compile_input_schema({"features": [{"name": "x", "dtype": "float32", "shape": [2, 2]}]})

    with pytest.raises(InputInvalid) as refused:
        schema.assemble({"x": [[1, 2], "no"]})

    assert refused.value.violations == (("/inputs/x/1", "expected a list of shape [2, 2] of a number, got a string"),)


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("bool", [True, False], [1, 0, "true", None]),
        ("int32", [0, -(2**31), 2**31 - 1], [2**31, 1.5, True, "1"]),
        ("int64", [2**63 - 1], [2**63, 0.5]),
        ("uint8", [0, 255], [-1, 256]),
        ("float32", [0, 1.5, 3.4e38], [3.5e38, 1e39, True, "1", None, []]),
        ("float64", [1e308, 7], [False, "x"]),
        ("string", ["", "é"], [1, None, ["a"]]),
    ],
)
def test_a_datatype_takes_its_values_and_no_others(dtype, good, bad):
    schema = compile_input_schema({"features": [{"name": "x", "dtype": dtype}]})

    for value in good:
        schema.assemble({"x": value})
    for value in bad:
        with pytest.raises(InputInvalid) as refused:
            schema.assemble({"x": value})
        assert pointers(refused.value) == ["/inputs/x"]


def test_stored_values_stand_in_for_what_the_request_leaves_out_and_defaults_for_the_rest():
    schema = compile_input_schema(
        {
            "features": [
                {"name": "age", "dtype": "float32"},
                {"name": "income", "dtype": "float32", "source": "store"},
                {"name": "visits", "dtype": "float32", "source": "store", "default": 7},
            ]
        }
    )

    own = schema.assemble({"age": 1, "income": 2, "visits": 3}, {"income": 20, "visits": 30})
    stored = schema.assemble({"age": 1}, {"income": 20, "visits": 30})
    defaulted = schema.assemble({"age": 1}, {"income": 20})

    assert own.row == tuple(struct.pack("<f", value) for value in (1, 2, 3))
    assert stored.row == tuple(struct.pack("<f", value) for value in (1, 20, 30))
    assert defaulted.row[2] == struct.pack("<f", 7)
    assert (own.defaulted, stored.defaulted, defaulted.defaulted) == ((), (), ("visits",))
    with pytest.raises(InputInvalid, match="1 problem") as refused:
        schema.assemble({"age": 1}, {})
    assert "feature store has no value" in refused.value.violations[0].detail


def test_single_values_are_those_that_were_assembled_and_private_ones_are_not_among_them():
    schema = compile_input_schema(
        {
            "features": [
                {"name": "age", "dtype": "float32"},
                {"name": "plan", "dtype": "string", "default": "free"},
                {"name": "visits", "dtype": "int64", "source": "store", "default": 0},
                {"name": "email", "dtype": "string", "private": True},
                {"name": "history", "dtype": "float32", "shape": [2]},
            ]
        }
    )
    given = {"age": 41, "email": "dana@example.org", "history": [1, 2]}

    assert single_values(schema.features, given, {"visits": 7}) == {"age": 41, "plan": "free", "visits": 7}
    assert single_values(schema.features, {**given, "visits": 9, "plan": "pro"}, {"visits": 7}) == {
        "age": 41,
        "plan": "pro",
        "visits": 9,
    }
    assert single_values(schema.features, given) == {"age": 41, "plan": "free", "visits": 0}


def test_a_stored_value_of_the_wrong_type_is_a_violation_too():
    schema = compile_input_schema({"features": [{"name": "age", "dtype": "float32", "source": "store"}]})

    with pytest.raises(InputInvalid):
        schema.assemble({}, {"age": "forty"})


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_strings_are_packed_with_their_lengths_so_two_inputs_never_look_alike(words):
    schema = compile_input_schema({"features": [{"name": "w", "dtype": "string", "shape": [2]}]})

    row = schema.assemble({"w": words}).row

    assert [element.decode() for element in split_bytes_elements(row[0])] == words


def test_tensors_of_one_row_do_not_run_into_each_other_in_the_hash():
    schema = compile_input_schema({"features": [{"name": n, "dtype": "string"} for n in "ab"]})

    assert schema.assemble({"a": "x", "b": ""}).digest != schema.assemble({"a": "", "b": "x"}).digest


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "input_schema"),
        ({}, "input_schema.features"),
        ({"features": []}, "input_schema.features"),
        ({"features": [{"dtype": "float32"}]}, "features[0]"),
        ({"features": [{"name": "x"}]}, "dtype"),
        ({"features": [{"name": "x", "dtype": "float99"}]}, "dtype"),
        ({"features": [{"name": "x", "dtype": "float32", "shape": [0]}]}, "shape"),
        ({"features": [{"name": "x", "dtype": "float32", "shape": [2_000_000]}]}, "elements"),
        ({"features": [{"name": "x", "dtype": "float32", "mni": 1}]}, "'mni'"),
        ({"features": [{"name": "x", "dtype": "string", "min": 1}]}, "min and max"),
        ({"features": [{"name": "x", "dtype": "float32", "default": "a"}]}, "default"),
        ({"features": [{"name": "x", "dtype": "float32", "enum": ["a"]}]}, "enum"),
        ({"features": [{"name": "x", "dtype": "float32", "source": "moon"}]}, "source"),
        ({"features": [{"name": "x", "dtype": "float32", "private": "yes"}]}, "private"),
        ({"features": [{"name": "x", "dtype": "string", "slice": "yes"}]}, "slice"),
        ({"features": [{"name": "x", "dtype": "string", "slice": True, "private": True}]}, "never logged"),
        ({"features": [{"name": "x", "dtype": "float32", "slice": True}]}, "truth value"),
        ({"features": [{"name": "x", "dtype": "string", "shape": [2], "slice": True}]}, "truth value"),
        ({"features": [{"name": "entity_id", "dtype": "string", "slice": True}]}, "the call's own"),
        ({"features": [{"name": "category", "dtype": "string", "slice": True}]}, "the call's own"),
        ({"features": [{"name": ROUTED, "dtype": "string", "slice": True}]}, "the call's own"),
        ({"features": [{"name": f"x{n}", "dtype": "string", "slice": True} for n in range(5)]}, "at most 4"),
        ({"features": [{"name": "x", "dtype": "float32"}] * 2}, "one name"),
        (an_input_schema(tensors=[]), "input_schema.tensors"),
        (an_input_schema(tensors=[{"name": "t", "features": ["age"]}]), "income"),
        (an_input_schema(tensors=[{"name": "t", "features": ["age", "age", "income"]}]), "exactly one"),
        (an_input_schema(tensors=[{"name": "t", "features": ["age", "nobody"]}]), "nobody"),
        (an_input_schema(tensors=[{"name": "t", "dtype": "string", "features": ["age", "income"]}]), "dtype"),
        (an_input_schema(tensors=[{"name": "t", "shape": [3], "features": ["age", "income"]}]), "shape"),
        (an_input_schema(batch="yes"), "batch"),
        ({"features": [{"name": "x", "dtype": "int64", "max": 1e300}]}, "max"),
        ({"features": [{"name": "x", "dtype": "int8", "enum": [300]}]}, "enum"),
        ({"features": [{"name": "x", "dtype": "uint8", "default": -1}]}, "default"),
        ({"features": [{"name": str(n), "dtype": "float32"} for n in range(MAX_FEATURES + 1)]}, "at most 4,096"),
        ({"features": [{"name": "x" * 256, "dtype": "float32"}]}, "1 to 255 characters"),
        ({"features": [{"name": "x", "dtype": "int64", "enum": list(range(5_000))}]}, "enum"),
        (an_input_schema(tensors=[{"name": "t" * 256, "features": ["age", "income"]}]), "1 to 255 characters"),
    ],
)
def test_a_schema_that_cannot_be_used_says_where(document: Any, place: str):
    with pytest.raises(SchemaInvalid) as refused:
        compile_input_schema(document)

    assert place in refused.value.detail


def test_of_thousands_of_features_that_no_tensor_has_a_few_are_named():
    features = [{"name": f"f{n:04}", "dtype": "float32"} for n in range(MAX_FEATURES)]
    tensors = [{"name": "t", "features": ["f0000"]}]

    with pytest.raises(SchemaInvalid, match=r"f0001, f0002, f0003, f0004, f0005 and 4,090 more$"):
        compile_input_schema({"features": features, "tensors": tensors})


def test_an_output_schema_that_cannot_be_used_says_where():
    for document, place in [
        ("x", "output_schema"),
        ({"score_index": 2, "shape": [2]}, "score_index"),
        ({"activation": "relu"}, "activation"),
        ({"labels": ["a"], "shape": [2]}, "labels"),
        ({"dtype": 4}, "dtype"),
        ({"colour": 1}, "'colour'"),
        ({"labels": ["a"] * 5_000}, "at most 4,096"),
        ({"tensor": "t" * 256}, "1 to 255 characters"),
        ({"threshold": "high"}, "threshold: expected a number"),
        ({"threshold": float("nan")}, "threshold: expected a number from"),
        ({"threshold": 10**400}, "threshold: expected a number from"),
        ({"threshold": 0.5, "dtype": "string"}, "threshold: strings"),
    ]:
        with pytest.raises(SchemaInvalid) as refused:
            compile_output_schema(document)
        assert place in refused.value.detail


def test_an_empty_output_schema_accepts_anything():
    assert compile_output_schema(None) == compile_output_schema({})
    assert compile_output_schema({"dtype": "FP32"}).datatype is Datatype.FP32


any_json = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just([1])


@given(st.dictionaries(st.sampled_from(["age", "income", "other"]), any_json))
def test_the_short_way_and_the_long_way_agree(values):
    features = [{"name": "age", "dtype": "float32", "min": 0, "max": 130}, {"name": "income", "dtype": "float64"}]
    schema = compile_input_schema({"features": features, "tensors": [{"name": "t", "features": ["age", "income"]}]})
    assert schema.scalars is not None

    def outcome(chosen: InputSchema) -> object:
        try:
            return chosen.assemble(values)
        except InputInvalid as refused:
            return refused.violations

    assert outcome(schema) == outcome(replace(schema, scalars=None))


def test_a_hundred_thousand_unknown_names_are_not_all_repeated():
    schema = compile_input_schema(an_input_schema())
    values = {"age": 1, "income": 2, **{f"x{n}" + "y" * 500: 0 for n in range(100_000)}}

    with pytest.raises(InputInvalid) as refused:
        schema.assemble(values)

    assert len(refused.value.violations) == 1_000
    assert max(len(violation.pointer) for violation in refused.value.violations) < 300


def test_of_a_long_list_as_many_elements_are_looked_at_as_an_answer_names():
    document = {"features": [{"name": "past", "dtype": "float32", "shape": [200, 50]}]}

    with pytest.raises(InputInvalid, match=r"^1,000 problems or more$") as refused:
        compile_input_schema(document).assemble({"past": [["no"] * 50] * 200})

    assert [one.pointer for one in refused.value.violations[::999]] == ["/inputs/past/0/0", "/inputs/past/19/49"]
