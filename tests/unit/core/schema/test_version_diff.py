"""What differs between two versions, and whose calls fit both."""

from typing import Any

import pytest

from understudy.core.schema.input_diff import NO_DIFFERENCES, Names
from understudy.core.schema.version_diff import Callers, Comparison, Difference, Part, compare_versions
from understudy.errors import SchemaInvalid

AGE = {"name": "age", "dtype": "float32"}
PLAN = {"name": "plan", "dtype": "string", "enum": ["free", "pro"], "default": "free"}
SEVEN_AND_EIGHT = Names("version 7", "version 8")


def a_row(version: str = "7", features: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "version": version,
        "protocol": "oip",
        "endpoints": ("a:1",),
        "input_schema": {"features": features or [AGE]},
        "output_schema": {},
        "timeout_ms": 500,
        "cache_ttl_seconds": 300,
        "deterministic": True,
        "framework": "sklearn",
        "artifact_path": "s3://models/churn",
        "artifact_digest": None,
        "base_model": None,
        "family": None,
        "backend": {},
        **changes,
    }


def compared(old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    return compare_versions(old, new, SEVEN_AND_EIGHT)


def test_a_version_differs_from_itself_in_nothing_and_answers_all_its_callers():
    row = a_row(features=[AGE, PLAN], output_schema={"tensor": "p", "labels": ["no", "yes"]})

    assert compared(row, row) == Comparison(Callers.ALL, NO_DIFFERENCES, ())


def test_what_says_the_same_in_other_words_or_another_order_is_no_difference():
    said = [PLAN, {"name": "age", "dtype": "FP32", "shape": [], "source": "request", "description": "in years"}]

    found = compared(
        a_row(features=[AGE, PLAN], endpoints=("a:1", "b:1")), a_row(features=said, endpoints=("b:1", "a:1"))
    )

    assert found.differences == ()


def test_an_input_that_only_one_version_takes_is_told_whole():
    found = compared(a_row(features=[AGE]), a_row(features=[PLAN]))

    age, plan = found.differences
    assert age == Difference(Part.INPUT, "age", "", {"dtype": "float32", "shape": [], "required": True}, None)
    assert plan[:4] == (Part.INPUT, "plan", "", None)
    assert plan.new == {"dtype": "string", "shape": [], "required": False, "default": "free", "enum": ["free", "pro"]}


@pytest.mark.parametrize(
    ("change", "field", "old", "new"),
    [
        ({"dtype": "int64"}, "dtype", "float32", "int64"),
        ({"shape": [3]}, "shape", [], [3]),
        ({"min": 0}, "min", None, 0),
        ({"max": 130}, "max", None, 130),
        ({"enum": [1, 2]}, "enum", None, [1, 2]),
        ({"private": True}, "private", None, True),
        ({"per": "treatment"}, "per", None, "treatment"),
    ],
)
def test_a_field_of_an_input_that_both_take_is_told_by_itself_with_both_sides(change, field, old, new):
    found = compared(a_row(features=[AGE]), a_row(features=[{**AGE, **change}]))

    assert Difference(Part.INPUT, "age", field, old, new) in found.differences


def test_a_default_that_is_new_is_one_difference_and_that_nobody_has_to_send_the_input_another():
    found = compared(a_row(features=[AGE]), a_row(features=[{**AGE, "default": 30}]))

    assert found.differences == (
        Difference(Part.INPUT, "age", "required", True, False),
        Difference(Part.INPUT, "age", "default", None, 30),
    )


def test_an_input_that_comes_from_the_feature_store_is_not_required():
    found = compared(a_row(features=[AGE]), a_row(features=[{**AGE, "source": "store"}]))

    assert found.differences == (
        Difference(Part.INPUT, "age", "required", True, False),
        Difference(Part.INPUT, "age", "source", None, "store"),
    )


def test_tensors_are_compared_only_where_a_version_names_them():
    packed = {"features": [AGE], "tensors": [{"name": "x", "dtype": "float64", "features": ["age"]}]}

    unnamed = compared(a_row(features=[AGE]), a_row(features=[{**AGE, "dtype": "int64"}]))
    named = compared(a_row(features=[AGE]), a_row(input_schema=packed))

    assert Part.TENSOR not in {difference.part for difference in unnamed.differences}
    assert named.differences == (
        Difference(Part.TENSOR, "age", "", {"dtype": "float32", "shape": [], "features": ["age"]}, None),
        Difference(Part.TENSOR, "x", "", None, {"dtype": "float64", "shape": [1], "features": ["age"]}),
    )


def test_how_inputs_are_laid_out_is_compared_too():
    ranked = [AGE, {"name": "price", "dtype": "float32", "per": "treatment"}]
    rows, nested = {"features": ranked}, {"features": ranked, "treatments": {"layout": "nested", "counts": "n"}}

    single = compared(a_row(), a_row(input_schema={"features": [AGE], "batch": False}))
    laid_out = compared(a_row(input_schema=rows), a_row(input_schema=nested))

    assert single.differences == (Difference(Part.INPUT_SCHEMA, "", "batch", True, False),)
    assert laid_out.differences == (
        Difference(Part.INPUT_SCHEMA, "", "treatments", {"layout": "rows"}, {"layout": "nested", "counts": "n"}),
    )


def test_each_field_of_the_output_is_told_with_both_sides():
    old = {"tensor": "p", "dtype": "float32", "shape": [2], "score_index": 1, "labels": ["no", "yes"], "threshold": 0.5}
    new = {"tensor": "logit", "shape": [1], "activation": "sigmoid", "min": 0, "max": 1}

    found = compared(a_row(output_schema=old), a_row(output_schema=new))

    assert {difference.part for difference in found.differences} == {Part.OUTPUT}
    assert {difference.field: difference[3:] for difference in found.differences} == {
        "tensor": ("p", "logit"),
        "dtype": ("float32", None),
        "shape": ([2], [1]),
        "score_index": (1, None),
        "labels": (["no", "yes"], None),
        "threshold": (0.5, None),
        "activation": (None, "sigmoid"),
        "min": (None, 0),
        "max": (None, 1),
    }


def test_each_model_server_that_only_one_version_has_is_told():
    found = compared(a_row(endpoints=("a:1", "b:1")), a_row(endpoints=("b:1", "c:1")))

    assert found.differences == (
        Difference(Part.ENDPOINT, "", "", "a:1", None),
        Difference(Part.ENDPOINT, "", "", None, "c:1"),
    )


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("protocol", "tfserving"),
        ("timeout_ms", 80),
        ("cache_ttl_seconds", 0),
        ("deterministic", False),
        ("framework", "onnx"),
        ("artifact_path", "s3://models/churn/8"),
        ("artifact_digest", "sha256:ab"),
        ("base_model", "llama-70b-v1"),
        ("family", "llama"),
        ("backend", {"model_name": "c"}),
    ],
)
def test_each_setting_is_told_with_both_sides(field, new):
    old = a_row()

    found = compared(old, a_row(**{field: new}))

    assert found == Comparison(Callers.ALL, NO_DIFFERENCES, (Difference(Part.SETTING, "", field, old[field], new),))


@pytest.mark.parametrize(
    ("features", "callers"),
    [
        ([AGE, {"name": "tenure", "dtype": "int64", "default": 0}], Callers.ALL),
        ([{**AGE, "min": 18}], Callers.SOME),
        ([AGE, {"name": "tenure", "dtype": "int64"}], Callers.NONE),
        (
            [AGE, {"name": "tenure", "dtype": "int64"}, {"name": "city", "dtype": "string", "source": "store"}],
            Callers.NONE,
        ),
    ],
    ids=["new with default", "narrower", "new and required", "both"],
)
def test_whose_calls_fit_both_is_decided_as_when_a_policy_is_set(features, callers):
    assert compared(a_row(features=[AGE]), a_row(features=features)).callers is callers


def test_why_calls_fail_is_told_with_the_names_of_the_versions():
    found = compared(
        a_row(features=[AGE]), a_row(features=[PLAN | {"default": "pro"}, {"name": "city", "dtype": "string"}])
    )

    assert found.inputs.breaking == (
        "city: new and required, and version 7 refuses calls that have it",
        "age: version 7 takes it and version 8 does not",
    )


@pytest.mark.parametrize("schema", ["input_schema", "output_schema"])
def test_a_schema_that_cannot_be_compiled_is_told_with_its_version(schema):
    with pytest.raises(SchemaInvalid) as refused:
        compared(a_row("7"), a_row("8") | {schema: {"nonsense": 1}})

    assert refused.value.detail.startswith(f"version 8: {schema}: unknown field 'nonsense'")
