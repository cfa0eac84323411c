"""TensorFlow Serving's `:classify` and `:regress` over REST, through the application with in-memory parts."""

import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import a_version_row, an_input_schema, policy_rows

from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.entrypoints.proxy.dialects import kserve_v1
from understudy.entrypoints.proxy.dialects.kserve_v1 import Examples, classified

CLASSIFY, REGRESS = "/v1/models/visits:classify", "/v1/models/visits:regress"
EXAMPLES = {"examples": [{"age": [40.0], "income": 2}, {"age": 30}], "context": {"income": 1.0}}


def pair(rows: Sequence[Row]) -> Tensor:
    values = [one for row in rows for one in struct.unpack("<2f", row[0])]
    return Tensor(Datatype.FP32, (len(rows), 2), np.array(values, "<f4") * np.float32(0.1), "pair")


def words(rows: Sequence[Row]) -> Tensor:
    return Tensor(Datatype.BYTES, (len(rows), 1), np.array([b"yes"] * len(rows), object), "label")


async def test_classes_have_scores_and_what_the_examples_share_is_in_each(start):
    proxy = await start(functions={"1": pair})

    response = await proxy.client.post(CLASSIFY, json=EXAMPLES)

    assert response.status_code == 200
    assert response.text == '{"results":[[["",4.0],["",0.2]],[["",3.0],["",0.1]]]}'
    assert len(proxy.spool.rows) == 2


async def test_a_regression_is_a_number_for_each_row(start):
    proxy = await start()

    response = await proxy.client.post(REGRESS, json={**EXAMPLES, "entity_id": "u"})

    assert response.json() == {"results": [21.0, 15.5]}
    assert [row.entity_id for row in proxy.spool.rows] == ["u", "u"]


async def test_a_text_is_a_class_and_no_regression(start):
    proxy = await start(functions={"1": words})

    assert (await proxy.client.post(CLASSIFY, json=EXAMPLES)).json() == {"results": [[["yes", 0.0]]] * 2}
    assert (await proxy.client.post(REGRESS, json=EXAMPLES)).json()["code"] == "E111"


async def test_several_values_of_a_row_are_no_regression(start):
    proxy = await start(functions={"1": pair})

    response = await proxy.client.post(REGRESS, json=EXAMPLES)

    assert (response.status_code, response.json()["code"]) == (501, "E111")


REFUSED: dict[str, tuple[Any, int, str, str]] = {
    "no examples": ({"instances": []}, 400, "E100", ""),
    "no object": ([], 400, "E100", ""),
    "none": ({"examples": []}, 422, "E105", "/examples"),
    "no rows": ({"examples": [1]}, 422, "E101", "/examples"),
    "no context": ({**EXAMPLES, "context": 1}, 422, "E101", "/context"),
    "other field": ({**EXAMPLES, "x": 1}, 422, "E101", "/x"),
    "a value": ({"examples": [{"age": 500, "income": 1}]}, 422, "E101", "/examples/0/age"),
    "a value of all": ({"examples": [{"income": 1}], "context": {"age": 500}}, 422, "E101", "/context/age"),
    "another context": ({**EXAMPLES, "context": {"x/y": 1}}, 422, "E101", "/context/x~1y"),
    "too many": ({"examples": [{}] * 257, "context": {"age": 1}}, 422, "E105", "/examples"),
    "a signature": ({**EXAMPLES, "signature_name": "other"}, 422, "E101", "/signature_name"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_used_is_refused_with_its_place(start, name):
    proxy = await start()
    body, status, code, pointer = REFUSED[name]

    response = await proxy.client.post(CLASSIFY, json=body)

    found = response.json()
    assert (response.status_code, found["code"]) == (status, code)
    assert [one["pointer"] for one in found.get("errors", [])] == ([pointer] if pointer else [])


async def test_a_context_stands_for_no_more_elements_than_a_body_may_leave_out(start):
    wide = an_input_schema(features=[{"name": "wide", "dtype": "float32", "shape": [400]}], tensors=None)
    del wide["tensors"]
    models = {"visits": policy_rows(versions=[a_version_row("1", input_schema=wide)])}
    proxy = await start(models=models)

    response = await proxy.client.post(CLASSIFY, json={"examples": [{}] * 100, "context": {"wide": [0.5] * 400}})

    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/context")


async def test_a_context_stands_for_no_more_text_than_a_body_may_have(start):
    features = [{"name": "word", "dtype": "string"}]
    models = {"visits": policy_rows(versions=[a_version_row("1", input_schema={"features": features, "batch": True})])}
    proxy = await start(models=models)

    response = await proxy.client.post(CLASSIFY, json={"examples": [{}] * 256, "context": {"word": ["w" * 5_000]}})

    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/context")


async def test_many_classes_are_worded_in_a_thread(start, monkeypatch):
    def wide(rows: Sequence[Row]) -> Tensor:
        return Tensor(Datatype.FP32, (len(rows), 2_000), np.zeros(2_000 * len(rows), "<f4"), "wide")

    threads: list[threading.Thread] = []
    classes_of = kserve_v1.classes_of

    def watched(answered: Any) -> Any:
        threads.append(threading.current_thread())
        return classes_of(answered)

    monkeypatch.setattr(kserve_v1, "classes_of", watched)
    proxy = await start(functions={"1": wide})

    response = await proxy.client.post(CLASSIFY, json=EXAMPLES)

    assert response.status_code == 200
    assert threads[0] is not threading.main_thread()


@pytest.mark.parametrize("key", ["context", "conte\\u0078t", "\\u0063ontext"])
def test_a_body_whose_context_stands_for_more_is_read_beside_the_event_loop_however_its_key_is_written(key):
    dialect = Examples(classified)

    assert dialect.is_short(b'{"examples":[{}]}', {})
    assert not dialect.is_short(b'{"examples":[{}],"%b":{}}' % key.encode(), {})
