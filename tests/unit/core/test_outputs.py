from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.outputs import Prediction, decode_cached, encode_cached, predictions_of
from understudy.core.schema import OutputSchema
from understudy.core.schema_reader import compile_output_schema
from understudy.core.tensors import Datatype, Tensor
from understudy.errors import BadAnswer

TWO_CLASSES = compile_output_schema({"dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1})


def fp32(shape: tuple[int, ...], *values: float) -> Tensor:
    return Tensor(Datatype.FP32, shape, np.array(values, dtype="<f4"))


def read(schema: OutputSchema, tensor: Tensor, rows: int = 1, *, batch: bool = True) -> list[Any]:
    predictions = predictions_of(schema, tensor, rows, batch=batch)
    return [orjson.loads(prediction.json) for prediction in predictions if isinstance(prediction, Prediction)]


def test_the_score_is_the_named_value_in_its_shortest_form():
    assert read(TWO_CLASSES, fp32((2, 2), 0.9, 0.1, 0.69, 0.31), rows=2) == [{"score": 0.1}, {"score": 0.31}]
    assert predictions_of(TWO_CLASSES, fp32((1, 2), 0.69, 0.31), 1, batch=True) == [Prediction(b'{"score":0.31}', 0.31)]


def test_several_values_without_an_index_give_the_scores_and_the_best_label():
    schema = compile_output_schema({"shape": [3], "labels": ["a", "b", "c"]})

    assert read(schema, fp32((1, 3), 0.5, 2.0, 1.0)) == [{"label": "b", "scores": [0.5, 2.0, 1.0]}]


def test_activations_are_applied():
    sigmoid = compile_output_schema({"activation": "sigmoid"})
    softmax = compile_output_schema({"activation": "softmax", "score_index": 0})

    assert read(sigmoid, fp32((2, 1), 0.0, 1000.0), rows=2) == [{"score": 0.5}, {"score": 1.0}]
    assert read(softmax, fp32((1, 2), 5.0, 5.0)) == [{"score": 0.5}]


def test_strings_are_labels():
    answer = Tensor(Datatype.BYTES, (1, 1), np.array([b"cat"], dtype=object))

    assert read(compile_output_schema({}), answer) == [{"label": "cat"}]


def test_an_output_without_a_batch_dimension_is_read_whole():
    assert read(compile_output_schema({"shape": []}), fp32((), 0.25), batch=False) == [{"score": 0.25}]


@pytest.mark.parametrize(
    "tensor",
    [
        fp32((1, 3), 0.1, 0.2, 0.3),
        fp32((2, 2), 0.1, 0.2, 0.3, 0.4),
        fp32((2,), 0.1, 0.2),
        fp32((1, 2), 0.1),
        fp32((1, 0)),
        fp32(()),
        Tensor(Datatype.INT64, (1, 2), np.array([0, 1])),
        Tensor(Datatype.BYTES, (1, 1), np.array([b"x"], dtype=object)),
    ],
)
def test_an_answer_of_another_form_is_refused_whole(tensor):
    with pytest.raises(BadAnswer):
        predictions_of(TWO_CLASSES, tensor, 1, batch=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, -0.5])
def test_a_bad_value_costs_its_own_row_alone(value):
    first, second, third = predictions_of(TWO_CLASSES, fp32((3, 2), 0.5, 0.5, 0.5, value, 0.4, 0.6), 3, batch=True)

    assert isinstance(second, BadAnswer)
    assert first == Prediction(b'{"score":0.5}', 0.5)
    assert third == Prediction(b'{"score":0.6}', 0.6)


def test_a_string_that_is_no_text_costs_its_own_row_alone():
    for element in (b"\xff", b"a\x00b"):
        answer = Tensor(Datatype.BYTES, (2, 1), np.array([element, b"cat"], dtype=object))

        bad, good = predictions_of(OutputSchema(), answer, 2, batch=True)

        assert isinstance(bad, BadAnswer)
        assert good == Prediction(b'{"label":"cat"}', None)


@given(st.floats(0, 1, width=32))
def test_a_cached_prediction_comes_back_as_it_was(score):
    (prediction,) = predictions_of(TWO_CLASSES, fp32((1, 2), 0.5, score), 1, batch=True)
    assert isinstance(prediction, Prediction)

    value = encode_cached(7, "d" * 64, prediction)

    assert decode_cached(TWO_CLASSES, 7, "d" * 64, value) == prediction


GOOD = encode_cached(7, "d" * 64, Prediction(b'{"score":0.5}', 0.5))


@given(st.integers(0, len(GOOD) - 1))
def test_a_cut_cache_value_is_a_miss(length):
    assert decode_cached(TWO_CLASSES, 7, "d" * 64, GOOD[:length]) is None


SOME_LABELS = compile_output_schema({"shape": [2], "labels": ["no", "yes"]})
LABELLED = b'{"version_id":7,"input_hash":"%s","prediction":{"label":"yes","scores":[0.1,0.9]}}' % (b"d" * 64)


def test_only_the_values_of_a_cached_body_are_taken():
    for label in (b'"<script>"', b'{"a":1}', b'"\\u0000"', b"[" * 400 + b"]" * 400, b'"' + b"x" * 1000 + b'"'):
        poisoned = LABELLED.replace(b'"yes"', label)

        found = decode_cached(SOME_LABELS, 7, "d" * 64, poisoned)

        assert found == Prediction(b'{"label":"yes","scores":[0.1,0.9]}', 0.9)


def test_a_cached_string_is_held_to_the_rules_of_a_servers_string():
    words = compile_output_schema({"dtype": "string", "shape": []})
    entry = b'{"version_id":7,"input_hash":"%s","prediction":{"label":%s}}'

    assert decode_cached(words, 7, "d" * 64, entry % (b"d" * 64, b'"cat"')) == Prediction(b'{"label":"cat"}', None)
    for label in (b'"a\\u0000"', b"5", b"{}", b'"' + b"x" * 2_000_000 + b'"'):
        assert decode_cached(words, 7, "d" * 64, entry % (b"d" * 64, label)) is None


@pytest.mark.parametrize(
    "value",
    [
        GOOD.replace(b"7", b"8"),
        GOOD.replace(b"dd", b"ee"),
        GOOD.replace(b'{"score":0.5}', b'{"score":1.5}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":null}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":0.5,"x":1}'),
        GOOD.replace(b'{"score":0.5}', b'{"label":"x","scores":[0.5,0.5]}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":"0.5"}'),
        GOOD.replace(b'{"score":0.5}', b'{"label":"x"}'),
        GOOD.replace(b'{"score":0.5}', b"[]"),
        b"null",
        b"[1]",
        b'{"version_id":7}',
    ],
)
def test_a_well_formed_cache_value_of_something_else_is_a_miss(value):
    assert value != GOOD
    assert decode_cached(TWO_CLASSES, 7, "d" * 64, value) is None


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1), (3, 1, 2)])
def test_one_more_dimension_of_one_is_accepted_at_either_end(shape):
    tensor = fp32(shape, 0.25, 0.75, 0.5, 0.5, 0.125, 0.875)

    assert read(TWO_CLASSES, tensor, rows=3) == [{"score": 0.75}, {"score": 0.5}, {"score": 0.875}]
