"""A model's own words stand against schemas that say something else, and against nothing that they leave open."""

from typing import Any

import pytest

from understudy.core.schema.compile import compile_input_schema, compile_output_schema
from understudy.core.schema.described import DescribedModel, DescribedTensor, contradictions, listed

X = DescribedTensor("x", "FP32", (-1, 3))
P = DescribedTensor("p", "FP32", (-1, 2))
THREE = {
    "features": [{"name": n, "dtype": "float32"} for n in "abc"],
    "tensors": [{"name": "x", "features": ["a", "b", "c"]}],
}
TWO = {"tensor": "p", "shape": [2], "score_index": 1}


def said(
    model: DescribedModel, inputs: dict[str, Any] | None = None, output: dict[str, Any] | None = None
) -> list[str]:
    return contradictions(
        compile_input_schema(inputs or THREE), compile_output_schema(TWO if output is None else output), model
    )


def a_model(*inputs: DescribedTensor, outputs: tuple[DescribedTensor, ...] = (P,)) -> DescribedModel:
    return DescribedModel("the model server", inputs or (X,), outputs)


@pytest.mark.parametrize(
    "model",
    [
        a_model(),
        DescribedModel("MLServer's scikit-learn runtime", (), ()),
        a_model(X._replace(shape=None)),
        a_model(X._replace(shape=(-1, -1))),
        a_model(X._replace(datatype="FP16")),
        a_model(X, DescribedTensor("mask", "BOOL", (-1,), is_optional=True)),
        a_model(outputs=(P._replace(shape=(-1, 2, 1)), DescribedTensor("label", "INT64", (-1,)))),
        a_model(outputs=(P._replace(shape=(-1, -1)),)),
    ],
    ids=[
        "same",
        "says nothing",
        "any shape",
        "free size",
        "unknown datatype",
        "optional",
        "of one more",
        "free output",
    ],
)
def test_a_model_that_leaves_something_open_contradicts_nothing(model):
    assert said(model) == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (a_model(X._replace(name="i")), ["there is no input 'x'; there is: i FP32 [?, 3]", "the input i FP32 [?, 3]"]),
        (a_model(X._replace(datatype="FP64")), ["the input 'x' is FP64, and the schema says FP32"]),
        (a_model(X._replace(shape=(-1, 4))), ["the input x FP32 [?, 4] would be sent with the shape [?, 3]"]),
        (a_model(X._replace(shape=(1, 3))), ["the input x FP32 [1, 3] would be sent with the shape [?, 3]"]),
        (a_model(outputs=(P._replace(name="scores"),)), ["there is no output 'p'; there is: scores FP32 [?, 2]"]),
        (a_model(outputs=(P._replace(shape=(-1, 3)),)), ["has the shape [3] for a row, and the schema says [2]"]),
        (a_model(outputs=(P._replace(shape=(1, 2)),)), ["the output p FP32 [1, 2] has one size for any"]),
    ],
    ids=["name", "datatype", "size", "no batch", "output", "output size", "output without batch"],
)  # fmt: skip
def test_what_differs_is_said_with_the_models_own_words(model, words):
    found = said(model)

    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_the_datatype_of_an_answer_is_compared_where_the_schema_has_one():
    assert said(a_model(), output={**TWO, "dtype": "float64"}) == ["the output 'p' is FP32, and the schema says FP64"]


def test_without_a_batch_the_whole_shape_is_compared():
    inputs = {**THREE, "batch": False}

    assert said(a_model(X._replace(shape=(3,)), outputs=(P._replace(shape=(2,)),)), inputs) == []
    assert "[?, 3] would be sent with the shape [3]" in said(a_model(outputs=(P._replace(shape=(2,)),)), inputs)[0]


def test_the_only_output_is_read_where_the_schema_names_none():
    assert said(a_model(outputs=(P._replace(name="any"),)), output={"shape": [2], "score_index": 0}) == []


def test_treatments_of_one_call_have_a_number_of_their_own():
    inputs = {
        "features": [{"name": "age", "dtype": "float32"}, {"name": "price", "dtype": "float32", "per": "treatment"}],
        "tensors": [{"name": "user", "features": ["age"]}, {"name": "items", "features": ["price"]}],
        "treatments": {"layout": "nested"},
    }
    model = a_model(DescribedTensor("user", "FP32", (-1, 1)), DescribedTensor("items", "FP32", (-1, 50, 1)))

    assert said(model, inputs, {"tensor": "p"}) == []


def test_of_many_names_the_first_ones_are_listed():
    assert listed([]) == "none"
    assert listed([str(number) for number in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
