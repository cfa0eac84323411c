from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schema.compile import compile_output_schema
from understudy.core.schema.outputs import (
    MAX_CACHED_BYTES,
    MAX_LOGGED_BYTES,
    Origin,
    Prediction,
    decode_cached,
    encode_cached,
    is_cacheable,
    predictions_of,
)
from understudy.core.schema.schema import OutputSchema
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.errors import BadAnswer

ORIGIN = Origin(7, "a5", "d" * 64)
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


@pytest.mark.parametrize("datatype", [one for one in Datatype if one.is_integer or one is Datatype.BOOL])
def test_activations_of_whole_numbers_are_those_of_the_same_floats(datatype):
    values = [1, 0, 1] if datatype is Datatype.BOOL else [3, 5, 127]
    for activation in ("sigmoid", "softmax"):
        schema = compile_output_schema({"activation": activation, "labels": ["a", "b", "c"]})

        (found,) = predictions_of(
            schema, Tensor(datatype, (1, 3), np.array(values, datatype.numpy_dtype)), 1, batch=True
        )
        (expected,) = predictions_of(schema, Tensor(Datatype.FP64, (1, 3), np.array(values, "<f8")), 1, batch=True)

        assert found == expected


def test_infinite_outputs_have_no_softmax_and_warn_of_nothing():
    softmax = compile_output_schema({"activation": "softmax", "score_index": 0})

    found = predictions_of(softmax, fp32((2, 2), float("inf"), 1.0, 5.0, 5.0), 2, batch=True)

    assert [type(one) for one in found] == [BadAnswer, Prediction]


def test_an_activation_does_not_wrap_around():
    def of(activation: str, *values: int) -> float:
        schema = compile_output_schema({"activation": activation, "score_index": len(values) - 1})
        tensor = Tensor(Datatype.UINT8, (1, len(values)), np.array(values, "u1"))
        (found,) = predictions_of(schema, tensor, 1, batch=True)
        assert isinstance(found, Prediction)
        assert found.score is not None
        return found.score

    assert of("sigmoid", 3) == pytest.approx(0.9526, abs=1e-4)
    assert of("softmax", 3, 5) == pytest.approx(0.8808, abs=1e-4)


def test_without_an_activation_whole_numbers_stay_whole():
    answer = Tensor(Datatype.INT64, (1, 1), np.array([2**63 - 1]))

    assert read(OutputSchema(), answer) == [{"score": 2**63 - 1}]


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


@pytest.mark.parametrize("bound", [-1e300, 1e300])
def test_a_bound_beyond_the_range_of_float32_is_compared_without_a_warning(bound):
    low, high = OutputSchema(minimum=bound), OutputSchema(maximum=bound)

    found = [predictions_of(schema, fp32((2, 1), 0.5, float("nan")), 2, batch=True)[0] for schema in (low, high)]

    assert [isinstance(one, Prediction) for one in found] == [bound < 0, bound > 0]


NO_NUMBERS = st.sampled_from([float("nan"), float("inf"), float("-inf")])
VALUES = {
    Datatype.FP32: NO_NUMBERS | st.floats(-(2.0**60), 2.0**60, width=32) | st.floats(0, 1, width=32),
    Datatype.FP64: NO_NUMBERS | st.floats(-(2.0**60), 2.0**60) | st.floats(0, 1),
    Datatype.INT64: st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 2, 2**53 + 2),
    Datatype.BOOL: st.booleans(),
}
BOUNDS = st.none() | st.sampled_from([0.0, 1.0, 0.5, 2.0**53, 2.0**63, -1e300, 1e300])


@given(st.data(), st.sampled_from(list(VALUES)), st.integers(1, 3), BOUNDS, BOUNDS)
def test_what_a_row_is_answered_depends_on_none_that_was_asked_with_it(data, datatype, size, minimum, maximum):
    index = data.draw(st.none() | st.integers(0, size - 1))
    activation = data.draw(st.sampled_from(["none", "none", "sigmoid", "softmax"]))
    schema = OutputSchema(score_index=index, activation=activation, minimum=minimum, maximum=maximum)
    row = st.lists(VALUES[datatype], min_size=size, max_size=size)
    rows = [np.array(one, datatype.numpy_dtype) for one in data.draw(st.lists(row, min_size=1, max_size=5))]

    together = predictions_of(schema, Tensor(datatype, (len(rows), size), np.concatenate(rows)), len(rows), batch=True)
    alone = [predictions_of(schema, Tensor(datatype, (1, size), one), 1, batch=True)[0] for one in rows]

    assert [told(one) for one in together] == [told(one) for one in alone]


def told(found: Prediction | BadAnswer) -> Prediction | str:
    return found if isinstance(found, Prediction) else found.detail


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

    value = encode_cached(ORIGIN, prediction)

    assert decode_cached(TWO_CLASSES, ORIGIN, value) == prediction


GOOD = encode_cached(ORIGIN, Prediction(b'{"score":0.5}', 0.5))


@given(st.integers(0, len(GOOD) - 1))
def test_a_cut_cache_value_is_a_miss(length):
    assert decode_cached(TWO_CLASSES, ORIGIN, GOOD[:length]) is None


def test_what_a_cache_takes_is_what_is_found_in_it_again():
    words = compile_output_schema({"dtype": "string", "shape": []})
    origin = Origin(2**63 - 1, "f" * 16, "d" * 64)
    longest = Prediction(b'{"label":"%b"}' % (b"x" * (MAX_CACHED_BYTES - 256 - 12)), None)

    value = encode_cached(origin, longest)

    assert is_cacheable(longest)
    assert decode_cached(words, origin, value) == longest
    assert not is_cacheable(Prediction(longest.json + b" ", None))


@pytest.mark.parametrize(
    ("schema", "body", "found"),
    [
        ({"dtype": "bool"}, b'{"score":true}', True),
        ({}, b'{"score":false}', True),
        ({"dtype": "bool", "shape": [2]}, b'{"label":1,"scores":[false,true]}', True),
        ({"dtype": "bool", "activation": "sigmoid"}, b'{"score":true}', False),
        ({"dtype": "float32"}, b'{"score":true}', False),
    ],
)
def test_a_cached_true_or_false_is_taken_only_where_a_server_may_have_said_it(schema, body, found):
    value = encode_cached(ORIGIN, Prediction(body, None))

    prediction = decode_cached(compile_output_schema(schema), ORIGIN, value)

    assert (prediction is not None and prediction.json == body) is found


SOME_LABELS = compile_output_schema({"shape": [2], "labels": ["no", "yes"]})
LABELLED = (
    b'{"version_id":7,"answer_digest":"a5","input_hash":"%s","prediction":{"label":"yes","scores":[0.1,0.9]}}'
    % (b"d" * 64)
)


def test_only_the_values_of_a_cached_body_are_taken():
    for label in (b'"<script>"', b'{"a":1}', b'"\\u0000"', b"[" * 400 + b"]" * 400, b'"' + b"x" * 1000 + b'"'):
        poisoned = LABELLED.replace(b'"yes"', label)

        found = decode_cached(SOME_LABELS, ORIGIN, poisoned)

        assert found == Prediction(b'{"label":"yes","scores":[0.1,0.9]}', 0.9)


def test_a_cached_string_is_held_to_the_rules_of_a_servers_string():
    words = compile_output_schema({"dtype": "string", "shape": []})
    entry = b'{"version_id":7,"answer_digest":"a5","input_hash":"%s","prediction":{"label":%s}}'

    assert decode_cached(words, ORIGIN, entry % (b"d" * 64, b'"cat"')) == Prediction(b'{"label":"cat"}', None)
    for label in (b'"a\\u0000"', b"5", b"{}", b'"' + b"x" * 2_000_000 + b'"'):
        assert decode_cached(words, ORIGIN, entry % (b"d" * 64, label)) is None


@pytest.mark.parametrize(
    "value",
    [
        GOOD.replace(b"7", b"8"),
        GOOD.replace(b"dd", b"ee"),
        GOOD.replace(b"a5", b"a6"),
        GOOD.replace(b"0.5", b"true"),
        GOOD.replace(b'{"score":0.5}', b'{"score":1.5}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":null}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":0.5,"x":1}'),
        GOOD.replace(b'{"score":0.5}', b'{"label":"x","scores":[0.5,0.5]}'),
        GOOD.replace(b'{"score":0.5}', b'{"score":"0.5"}'),
        GOOD.replace(b'{"score":0.5}', b'{"label":"x"}'),
        GOOD.replace(b'{"score":0.5}', b"[]"),
        GOOD[:-1] + b',"x":1}',
        GOOD + b"}",
        b"null",
        b"[1]",
        b'{"version_id":7}',
    ],
)
def test_a_well_formed_cache_value_of_something_else_is_a_miss(value):
    assert value != GOOD
    assert decode_cached(TWO_CLASSES, ORIGIN, value) is None


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 1), (3, 1, 2)])
def test_one_more_dimension_of_one_is_accepted_at_either_end(shape):
    tensor = fp32(shape, 0.25, 0.75, 0.5, 0.5, 0.125, 0.875)

    assert read(TWO_CLASSES, tensor, rows=3) == [{"score": 0.75}, {"score": 0.5}, {"score": 0.875}]


def test_the_log_keeps_a_long_answer_shortened_and_a_shorter_one_whole():
    size = MAX_LOGGED_BYTES // 4
    odd = 'a,"scores":[b'
    schema = compile_output_schema({"shape": [2], "labels": [odd, "c"]})
    (short,) = predictions_of(schema, fp32((1, 2), 0.75, 0.25), 1, batch=True)
    (long,) = predictions_of(OutputSchema(), fp32((1, size), 0.125, 0.75, *[0.125] * (size - 2)), 1, batch=True)
    words = Tensor(Datatype.BYTES, (1, 2), np.array([b"x" * MAX_LOGGED_BYTES, b"y"], dtype=object))
    (strings,) = predictions_of(OutputSchema(), words, 1, batch=True)
    assert isinstance(short, Prediction)
    assert isinstance(long, Prediction)
    assert isinstance(strings, Prediction)

    assert short.logged == short.json
    assert orjson.loads(long.logged) == {"label": 1, "omitted_bytes": len(long.json)}
    assert orjson.loads(strings.logged) == {"omitted_bytes": len(strings.json)}
    labelled = Prediction(short.json[:-2] + b",0.125" * size + b"]}", 0.75)
    assert orjson.loads(labelled.logged) == {"label": odd, "omitted_bytes": len(labelled.json)}
