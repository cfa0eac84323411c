"""Logged calls become calls again: nothing is made up for what the log does not have."""

from typing import Any

import numpy as np
import orjson
import pytest
from builders import an_input_schema
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.experiments.logged_calls import AdaptedInputs, Answer, adapt_inputs, answer_of
from understudy.core.requests.rank import ranking_of
from understudy.core.schema.compile import compile_input_schema
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.schema import InputSchema, OutputSchema, single_values
from understudy.core.schema.tensors import Datatype, Tensor


def a_schema(*features: dict[str, Any]) -> InputSchema:
    return compile_input_schema({"features": [{"dtype": "float32", **feature} for feature in features]})


def prediction_of(schema: OutputSchema, values: Any, datatype: Datatype = Datatype.FP32) -> Prediction:
    tensor = Tensor(datatype, (1, len(values)), np.array(values, datatype.numpy_dtype))
    (prediction,) = predictions_of(schema, tensor, 1, batch=True)
    assert isinstance(prediction, Prediction)
    return prediction


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (prediction_of(OutputSchema(), [0.25]), Answer(0.25)),
        (prediction_of(OutputSchema(labels=("low", "high")), [0.25, 0.75]), Answer(0.75, '"high"')),
        (prediction_of(OutputSchema(), [0.75, 0.25]), Answer(0.75, "0")),
        (prediction_of(OutputSchema(), [b"cat"], Datatype.BYTES), Answer(None, '"cat"')),
        (prediction_of(OutputSchema(), [b"cat", b"dog"], Datatype.BYTES), Answer(None, '["cat","dog"]')),
    ],
)
def test_an_answer_is_the_same_from_a_model_server_and_from_the_log(prediction, expected):
    document = orjson.loads(prediction.logged)
    document.pop("scores", None)
    as_postgres_writes_it = orjson.dumps(document, option=orjson.OPT_INDENT_2)

    assert answer_of(prediction.json, prediction.score) == expected
    assert answer_of(as_postgres_writes_it, prediction.score) == expected


def test_a_ranking_and_an_answer_without_a_number_are_no_answers_to_compare():
    ranking = ranking_of(np.array([0.25, 0.75]), ["a", "b"], None)

    assert answer_of(ranking.logged, ranking.score) is None
    assert answer_of("{}", None) is None
    assert answer_of('{"score": 1}', float("nan")) is None
    assert answer_of("null", 0.5) is None


@given(st.dictionaries(st.sampled_from(["age", "income"]), st.floats(0, 100, width=32), min_size=2))
def test_logged_values_fit_their_own_version_and_make_the_same_tensors(values):
    schema = compile_input_schema(an_input_schema())
    logged = orjson.loads(orjson.dumps(single_values(schema.features, values)))

    adapted = adapt_inputs(schema, schema, logged)

    assert adapted == AdaptedInputs(values, frozenset(), frozenset(), ())
    assert schema.assemble(adapted.values).digest == schema.assemble(values).digest


def test_inputs_that_the_version_does_not_take_are_left_out_and_new_ones_have_their_default():
    before = a_schema({"name": "age"}, {"name": "plan"})
    after = a_schema({"name": "age"}, {"name": "basket", "default": 0.5}, {"name": "visits", "default": 0})

    adapted = adapt_inputs(after, before, {"age": 41, "plan": 2})

    assert adapted == AdaptedInputs({"age": 41}, frozenset({"plan"}), frozenset({"basket", "visits"}), ())
    assert after.assemble(adapted.values).digest == after.assemble({"age": 41}).digest


@pytest.mark.parametrize("unlogged", [{"private": True}, {"shape": [2]}, {"private": True, "default": 0}])
def test_a_value_that_was_there_and_is_not_in_the_log_is_never_made_up(unlogged):
    schema = a_schema({"name": "age"}, {"name": "secret", **unlogged})
    logged = single_values(schema.features, {"age": 41, "secret": 1})

    assert adapt_inputs(schema, schema, logged).unknown == ("secret",)
    assert adapt_inputs(a_schema({"name": "age"}), schema, logged).unknown == ()
    assert adapt_inputs(a_schema({"name": "age"}, {"name": "secret", "default": 0}), schema, logged).unknown == (
        "secret",
    )


def test_what_only_the_feature_store_has_is_unknown_and_what_a_caller_would_have_to_send_is_refused():
    before = a_schema({"name": "age"})
    of_the_store = a_schema({"name": "age"}, {"name": "visits", "source": "store"})
    of_callers = a_schema({"name": "age"}, {"name": "visits"})

    assert adapt_inputs(of_the_store, before, {"age": 41}).unknown == ("visits",)
    assert adapt_inputs(of_callers, before, {"age": 41}) == AdaptedInputs({"age": 41}, frozenset(), frozenset(), ())


def test_of_a_version_before_that_cannot_be_read_every_input_that_is_not_there_is_unknown():
    after = a_schema({"name": "age"}, {"name": "basket", "default": 0.5})

    assert adapt_inputs(after, None, {"age": 41}).unknown == ("basket",)
