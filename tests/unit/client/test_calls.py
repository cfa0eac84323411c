"""Calls as the HTTP reference describes them."""

import json
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from understudy.client import Entity, Outcome, Treatment
from understudy.client.calls import Call, batch_calls, outcome_calls, predict_call, rank_call, receipt_call

DANA = Entity("dana", {"age": 41}, "vip")
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def body_of(call: Call) -> Any:
    assert call.body is not None
    return json.loads(call.body)


def test_names_are_quoted_in_paths():
    assert predict_call("a/b", DANA).path == "/v1/models/a%2Fb/predict"
    assert predict_call("a", DANA, version="1 2").path == "/v1/models/a/versions/1%202/predict"
    assert receipt_call("a", "x&y", None).path == "/v1/models/a/assignment?entity_id=x%26y"
    assert receipt_call("a", "e", "vip").path.endswith("?entity_id=e&category=vip")


def test_a_version_may_be_a_number_and_a_model_is_named_by_text():
    assert predict_call("a", DANA, version=7).path == "/v1/models/a/versions/7/predict"
    for nothing in (None, "", 7):
        with pytest.raises(TypeError, match="model: expected the name of a model, got"):
            predict_call(nothing, DANA)  # type: ignore[arg-type]  # what is refused


def test_a_category_is_sent_where_there_is_one():
    assert body_of(predict_call("a", DANA)) == {"entity_id": "dana", "inputs": {"age": 41}, "category": "vip"}
    assert body_of(predict_call("a", Entity("e"))) == {"entity_id": "e", "inputs": {}}


def test_numbers_of_numpy_are_numbers():
    assert body_of(predict_call("a", Entity("e", {"x": np.float32(0.5), "v": np.arange(2)})))["inputs"] == {
        "x": 0.5, "v": [0, 1],
    }  # fmt: skip


def test_a_long_batch_is_as_many_calls_as_it_takes_in_its_order():
    calls = batch_calls("a", [Entity(str(number)) for number in range(600)])

    members = [body_of(call)["entities"] for call in calls]
    assert [len(each) for each in members] == [256, 256, 88]
    assert [one["entity_id"] for each in members for one in each] == [str(number) for number in range(600)]
    assert batch_calls("a", []) == []


def test_treatments_go_as_columns_where_they_have_the_same_inputs():
    same = [Treatment("mail", {"price": 9.5}), Treatment("push", {"price": 4.0})]
    others = [Treatment("mail", {"price": 9.5}), Treatment("push")]

    assert body_of(rank_call("a", DANA, same, 1)) == {
        "entity_id": "dana", "inputs": {"age": 41}, "category": "vip", "top_k": 1,
        "treatments": {"ids": ["mail", "push"], "inputs": {"price": [9.5, 4.0]}},
    }  # fmt: skip
    assert body_of(rank_call("a", DANA, others, None))["treatments"] == [
        {"id": "mail", "inputs": {"price": 9.5}}, {"id": "push", "inputs": {}},
    ]  # fmt: skip


def test_outcomes_name_what_they_are_about_and_nothing_else():
    (call,) = outcome_calls([Outcome("o1", "visits", "converted", 1, NOON, entity_id="dana")])

    assert body_of(call) == {"events": [{
        "event_id": "o1", "model": "visits", "name": "converted", "value": 1, "entity_id": "dana",
        "occurred_at": "2026-11-20T12:00:00+00:00",
    }]}  # fmt: skip
    many = [Outcome(str(number), "a", "n", 1, NOON, "e") for number in range(1_001)]
    assert [len(body_of(call)["events"]) for call in outcome_calls(many)] == [1_000, 1]


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="'o1' has no zone"):
        outcome_calls([Outcome("o1", "visits", "converted", 1, datetime(2026, 11, 20), "dana")])  # noqa: DTZ001 - what is refused
