import json
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from builders import a_version_row
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.requests.predict import LONG_BYTES
from understudy.core.requests.rank import LOGGED_TREATMENTS, MAX_TREATMENTS, parse_rank, ranking_of
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.errors import BadAnswer, EntityIdInvalid, InputInvalid, MalformedBody, NotRankable

A, B = {"name": "a", "dtype": "float32"}, {"name": "b", "dtype": "float32", "per": "treatment"}
ROWS: dict[str, Any] = {
    "entity_id": "customer-42",
    "inputs": {"a": 1},
    "treatments": [{"id": "x", "inputs": {"b": 2}}, {"id": "y", "inputs": {"b": 3}}],
}
COLUMNS: dict[str, Any] = {**ROWS, "treatments": {"ids": ["x", "y"], "inputs": {"b": [2, 3]}}}
scores = st.lists(st.sampled_from([0.25, 0.5, 0.75]) | st.floats(-9, 9, width=32), min_size=1, max_size=40)


def a_version(**changes: Any) -> ModelVersion:
    row = a_version_row("1", input_schema={"features": [A, B]}, **changes)
    return version_from_row("offers", row)


def an_answer(*values: float, shape: tuple[int, ...] | None = None, kind: Datatype = Datatype.FP32) -> Tensor:
    return Tensor(kind, (len(values),) if shape is None else shape, np.array(values, kind.numpy_dtype))


@given(scores, st.none() | st.integers(1, 50))
def test_the_best_come_first_and_equal_ones_as_they_came(values, top_k):
    ids = [f"t{index}" for index in range(len(values))]
    expected = sorted(range(len(values)), key=lambda index: (-values[index], index))

    ranking = ranking_of(np.array(values, "<f4"), ids, top_k)

    answer, logged = orjson.loads(ranking.json), orjson.loads(ranking.logged)
    assert answer["treatments"] == logged["treatments"] == len(values)
    assert [one["id"] for one in logged["best"]] == [ids[index] for index in expected[:LOGGED_TREATMENTS]]
    assert ranking.score == logged["best"][0]["score"]
    if top_k is None:
        assert np.array_equal(np.array(answer["scores"], "<f4"), np.array(values, "<f4"))
    else:
        assert [one["id"] for one in answer["best"]] == [ids[index] for index in expected[:top_k]]


@pytest.mark.parametrize(
    ("dtype", "values", "best"),
    [("uint8", [0, 255, 1], 1), ("int64", [2**53, 2**53 + 1], 1), ("bool", [False, True], 1), ("int8", [-128, 0], 1)],
)
def test_no_datatype_turns_the_order_round(dtype, values, best):
    ranking = ranking_of(np.array(values, dtype), ["a", "b", "c"][: len(values)], 1)

    assert orjson.loads(ranking.json)["best"][0]["id"] == "abc"[best]


@pytest.mark.parametrize("body", [ROWS, COLUMNS])
def test_a_request_of_either_form_is_read(body):
    request = parse_rank(orjson.dumps({**body, "category": "vip", "top_k": 3}))
    assembled = request.assemble(a_version(), None)

    assert (request.entity_id, request.inputs, request.category, request.top_k) == ("customer-42", {"a": 1}, "vip", 3)
    assert assembled.block.contents == (struct.pack("<2f", 1, 1), struct.pack("<2f", 2, 3))
    assert list(assembled.ids) == ["x", "y"]


@pytest.mark.parametrize(
    ("changes", "error", "pointer"),
    [
        ({"entity_id": ""}, EntityIdInvalid, "/entity_id"),
        ({"inputs": []}, InputInvalid, "/inputs"),
        ({"category": 7}, InputInvalid, "/category"),
        ({"other": 7}, InputInvalid, "/other"),
        ({"top_k": 0}, InputInvalid, "/top_k"),
        ({"top_k": True}, InputInvalid, "/top_k"),
        ({"top_k": MAX_TREATMENTS + 1}, InputInvalid, "/top_k"),
        ({"treatments": None}, InputInvalid, "/treatments"),
        ({"treatments": []}, InputInvalid, "/treatments"),
        ({"treatments": [{"id": "x", "inputs": {}}] * (MAX_TREATMENTS + 1)}, InputInvalid, "/treatments"),
        ({"treatments": [{"id": "x"}]}, InputInvalid, "/treatments/0"),
        ({"treatments": [{"id": "x", "inputs": {}, "more": 1}]}, InputInvalid, "/treatments/0"),
        ({"treatments": [{"id": "", "inputs": {}}]}, InputInvalid, "/treatments/0/id"),
        ({"treatments": [{"id": "x", "inputs": {}}, {"id": "x", "inputs": {}}]}, InputInvalid, "/treatments/1/id"),
        ({"treatments": {"ids": ["x"]}}, InputInvalid, "/treatments"),
        ({"treatments": {"ids": "x", "inputs": {}}}, InputInvalid, "/treatments"),
        ({"treatments": {"ids": [], "inputs": {}}}, InputInvalid, "/treatments/ids"),
        ({"treatments": {"ids": ["x", 7], "inputs": {}}}, InputInvalid, "/treatments/ids/1"),
        ({"treatments": {"ids": ["x", "e" * 256], "inputs": {}}}, InputInvalid, "/treatments/ids/1"),
        ({"treatments": {"ids": ["x", "y", "x"], "inputs": {}}}, InputInvalid, "/treatments/ids/2"),
    ],
)
def test_what_cannot_be_read_is_refused_where_it_stands(changes, error, pointer):
    with pytest.raises(error) as refused:
        parse_rank(orjson.dumps({**ROWS, **changes}))

    assert [violation.pointer for violation in refused.value.violations] == [pointer]


@given(st.recursive(st.none() | st.integers(-3, 3) | st.text("ab", max_size=2),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["id", "ids", "inputs", "b"]), inner, max_size=3)))  # fmt: skip
def test_any_treatments_are_read_or_refused(treatments):
    body = json.dumps({**ROWS, "treatments": treatments}).encode()

    try:
        parse_rank(body).assemble(a_version(), None)
    except InputInvalid as refused:
        assert all(one.pointer.startswith("/treatments") for one in refused.violations)
        assert refused.violations


def test_a_body_that_is_no_object_is_malformed():
    with pytest.raises(MalformedBody):
        parse_rank(b"[]")


def test_only_a_long_body_is_large():
    short, long = orjson.dumps(ROWS), orjson.dumps(ROWS) + b" " * LONG_BYTES

    assert [parse_rank(body).has_long_body for body in (short, long)] == [False, True]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input_schema": {"features": [A]}}, 'no feature of its input_schema has "per": "treatment"'),
        ({"protocol": "torchserve"}, "one row a call"),
        ({"output_schema": {"shape": [2]}}, "score_index names none"),
        ({"output_schema": {"dtype": "string"}}, "strings, which have no order"),
    ],
)
def test_a_version_that_cannot_rank_says_what_to_register(changes, says):
    version = version_from_row("offers", a_version_row("7", **{"input_schema": {"features": [A, B]}, **changes}))

    with pytest.raises(NotRankable, match=says) as refused:
        parse_rank(orjson.dumps(ROWS)).assemble(version, None)

    assert "version 7" in refused.value.detail
    assert '"per": "treatment"' in refused.value.next_step


@pytest.mark.parametrize(
    ("output", "tensor", "expected"),
    [
        ({}, an_answer(1, 2), [1, 2]),
        ({}, an_answer(1, 2, shape=(2, 1)), [1, 2]),
        ({"shape": [2], "score_index": 1}, an_answer(1, 2, 3, 4, shape=(2, 2)), [2, 4]),
        ({"activation": "sigmoid"}, an_answer(0, 0), [0.5, 0.5]),
    ],
)
def test_the_score_of_each_treatment_is_read_as_a_predictions(output, tensor, expected):
    version = a_version(output_schema=output)
    assembled = parse_rank(orjson.dumps(ROWS)).assemble(version, None)

    assert orjson.loads(assembled.ranking_of(version.output_schema, tensor).json)["scores"] == expected


@pytest.mark.parametrize("shape", [(1, 2), (1, 2, 1), (2,), (2, 1)])
def test_a_nested_answer_may_keep_the_dimension_of_the_entity(shape):
    schema = {"features": [A, B], "treatments": {"layout": "nested"}}
    version = version_from_row("offers", a_version_row("1", input_schema=schema, output_schema={"shape": [1]}))
    assembled = parse_rank(orjson.dumps(COLUMNS)).assemble(version, None)
    flat = version_from_row("offers", a_version_row("1", output_schema={}))

    assert orjson.loads(assembled.ranking_of(flat.output_schema, an_answer(1, 2, shape=shape)).json)["scores"] == [1, 2]


@pytest.mark.parametrize(
    ("output", "tensor", "says"),
    [
        ({}, an_answer(1), "for 2 rows"),
        ({}, an_answer(1, 2, 3, 4, shape=(2, 2)), "score_index must name the score"),
        ({}, an_answer(1, float("nan")), r"NaN or infinite \(row 1\)"),
        ({"max": 1}, an_answer(1, 2), r"above 1, the schema's greatest value \(row 1\)"),
        ({}, Tensor(Datatype.BYTES, (2,), np.array([b"a", b"b"], object)), "no order"),
    ],
)
def test_one_unusable_score_spoils_the_ranking(output, tensor, says):
    version = a_version(output_schema=output)
    assembled = parse_rank(orjson.dumps(ROWS)).assemble(version, None)

    with pytest.raises(BadAnswer, match=says):
        assembled.ranking_of(version.output_schema, tensor)
