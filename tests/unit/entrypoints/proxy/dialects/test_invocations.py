"""MLflow's and SageMaker's calls, through the application with in-memory parts."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builders import a_version_row, policy_rows

from understudy.core.schema.tensors import Datatype, Row, Tensor

KEY, VISITOR = {"authorization": "Bearer ops.secret"}, {"authorization": "Bearer visitor.secret"}
PATH = "/v1/models/visits/invocations"
CSV = {"content-type": "text/csv"}


def pair(rows: Sequence[Row]) -> Tensor:
    values = [one for row in rows for one in struct.unpack("<2f", row[0])]
    return Tensor(Datatype.FP32, (len(rows), 2), np.array(values, "<f4"), "pair")


def frame(columns: Any, data: Any, **more: Any) -> dict[str, Any]:
    return {"dataframe_split": {"columns": columns, "data": data, **more}}


PAIR = [[40.0, 2.0], [30.0, 1.0]]
RECORDS = [{"age": age, "income": income} for age, income in PAIR]
FORMS = {
    "records": {"dataframe_records": RECORDS},
    "split": frame(["income", "age"], [[2, 40], [1, 30]], index=[0, 1]),
    "split of a tensor": frame([0, 1], PAIR),
    "instances": {"instances": PAIR},
    "instances of features": {"instances": RECORDS},
    "columns": {"inputs": {"age": [40, 30], "income": [2, 1]}},
    "a tensor": {"inputs": PAIR, "params": {"temperature": 1}},
    "a list": PAIR,
}
TEXTS = {
    "names": "age,income\n40,2.0\n30,1\n",
    "names in another order": 'income,"age"\r\n2,4e1\r\n1,30.0',
    "no names": "40,2\n30,1\n",
    "a blank line": "40,2\n\n30,1\n\n",
    "a byte order mark": "\ufeffage,income\n40,2\n30,1",
}


@pytest.mark.parametrize("name", FORMS)
async def test_each_form_of_json_is_the_same_rows(start, name):
    proxy = await start(functions={"1": pair})

    response = await proxy.client.post(PATH, json=FORMS[name])

    assert (response.status_code, response.json()) == (200, {"predictions": PAIR})
    assert len(proxy.spool.rows) == 2
    assert response.headers["x-amzn-invoked-production-variant"] == "1"
    assert response.headers["x-prediction-id"] == proxy.spool.rows[0].prediction_id


@pytest.mark.parametrize("name", TEXTS)
async def test_csv_is_the_same_rows(start, name):
    proxy = await start(functions={"1": pair})

    response = await proxy.client.post(PATH, content=TEXTS[name].encode(), headers=CSV)

    assert (response.status_code, response.json()) == (200, {"predictions": PAIR})


async def test_a_single_value_of_a_row_is_a_number_and_csv_is_answered_to_who_wants_it(start):
    proxy = await start()

    as_json = await proxy.client.post(PATH, json=FORMS["records"])
    as_csv = await proxy.client.post(PATH, json=FORMS["records"], headers={"accept": "text/csv, */*"})

    assert as_json.json() == {"predictions": [21.0, 15.5]}
    assert (as_csv.text, as_csv.headers["content-type"]) == ("21.0\n15.5\n", "text/csv; charset=utf-8")


@pytest.mark.parametrize("body", [b'age,income\n"1,2', b"age,income\n1,\xe9", b"age,income\n\x00,2"])
async def test_what_to_do_about_csv_is_not_to_send_json(start, body):
    proxy = await start()

    response = await proxy.client.post(PATH, content=body, headers=CSV)

    assert response.status_code == 400
    assert "Send a line of comma-separated values for each row" in response.json()["message"]


async def test_numbers_stand_in_csv_as_in_json_and_words_in_quotes_where_they_need_them(start):
    def words(rows: Sequence[Row]) -> Tensor:
        return Tensor(Datatype.BYTES, (len(rows), 2), np.array([b"a,b", b"c"] * len(rows), object), "label")

    numbers, texts = await start(functions={"1": pair}), await start(functions={"1": words})
    wishes = {"accept": "text/csv"}

    assert (await numbers.client.post(PATH, json=FORMS["records"], headers=wishes)).text == "40.0,2.0\n30.0,1.0\n"
    assert (await texts.client.post(PATH, json=FORMS["records"], headers=wishes)).text == '"a,b",c\n' * 2


REFUSED: dict[str, tuple[Any, dict[str, str], int, str, str]] = {
    "no form": ({"data": []}, {}, 400, "E100", ""),
    "two forms": ({"instances": [], "inputs": []}, {}, 400, "E100", ""),
    "other field": ({"instances": PAIR, "x": 1}, {}, 422, "E101", "/x"),
    "no rows": ({"dataframe_records": []}, {}, 422, "E105", "/dataframe_records"),
    "too many": (frame(["age"], [[1]] * 257), {}, 422, "E105", "/dataframe_split/data"),
    "a value": (
        {"dataframe_records": [*RECORDS, {"age": "x", "income": 1}]},
        {},
        422,
        "E101",
        "/dataframe_records/2/age",
    ),
    "a value of a frame": (frame(["income", "age"], [[1, 500]]), {}, 422, "E101", "/dataframe_split/data/0/1"),
    "a name": (frame(["agee", "income"], [[1, 2]]), {}, 422, "E101", "/dataframe_split/data/0/0"),
    "a short row": (frame(["age", "income"], [[1, 2], [1]]), {}, 422, "E101", "/dataframe_split/data/1"),
    "a name twice": (frame(["age", "age"], [[1, 2]]), {}, 422, "E101", "/dataframe_split/columns"),
    "no names": (frame("age", [[1, 2]]), {}, 422, "E101", "/dataframe_split/columns"),
    "no frame": ({"dataframe_split": [1]}, {}, 422, "E101", "/dataframe_split"),
    "of a list": ([[1, 2], [1]], {}, 422, "E101", "/1"),
    "no object": (7, {}, 400, "E100", ""),
    "csv value": ("age,income\n1,2\nx,2", CSV, 422, "E101", "/rows/1/age"),
    "csv without a name": ("1,2\n1,nan", CSV, 422, "E101", "/rows/1/1"),
    "csv name": ("agee,income\n1,2", CSV, 422, "E101", "/rows/0/agee"),
    "csv field": ("age,income\n1", CSV, 422, "E101", "/rows/0"),
    "csv missing": ("age,income\n1,", CSV, 422, "E101", "/rows/0"),
    "csv twice": ("age,age\n1,1", CSV, 422, "E101", "/rows"),
    "csv empty": ("", CSV, 422, "E105", "/rows"),
    "csv names alone": ("age,income\n", CSV, 422, "E105", "/rows"),
    "csv too many": ("1,2\n" * 257, CSV, 422, "E105", "/rows"),
    "csv quote": ('age,income\n"1,2', CSV, 400, "E100", ""),
    "csv zero": ("age,income\n\x00,2", CSV, 400, "E100", ""),
    "csv as names": ("1,2\n3,4", {"content-type": "text/csv; header=present"}, 422, "E101", "/rows/0/1"),
    "other kind": ("1,2", {"content-type": "application/x-npy"}, 400, "E104", ""),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_used_is_refused_with_its_place_and_a_message(start, name):
    proxy = await start()
    body, headers, status, code, pointer = REFUSED[name]
    sent = {"content": body.encode()} if isinstance(body, str) else {"json": body}

    response = await proxy.client.post(PATH, headers=headers, **sent)

    found = response.json()
    assert (response.status_code, found["code"]) == (status, code)
    assert found["message"] == found["error"]
    assert [one["pointer"] for one in found.get("errors", [])][:1] == ([pointer] if pointer else [])


async def test_an_empty_field_takes_its_default_and_truths_and_words_are_what_they_say(start):
    features = [
        {"name": "age", "dtype": "float32"},
        {"name": "is_new", "dtype": "bool"},
        {"name": "word", "dtype": "string", "default": "none"},
    ]
    schema = {"features": features, "batch": True}
    versions = [a_version_row("1", input_schema=schema, timeout_ms=10_000)]

    def ones(rows: Sequence[Row]) -> Tensor:
        return Tensor(Datatype.FP32, (len(rows), 1), np.ones(len(rows), "<f4"))

    proxy = await start(models={"words": policy_rows(versions=versions)}, functions={"1": ones})
    text = "age,is_new,word,entity_id\n1,True,7,a\n2,false,,b"

    response = await proxy.client.post("/v1/models/words/invocations", content=text.encode(), headers=CSV)

    assert response.json() == {"predictions": [1.0, 1.0]}
    assert [row.entity_id for row in proxy.spool.rows] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"dataframe_records": [{**RECORDS[0], "entity_id": "u"}]}, {}),
        ({**frame(["age", "income", "entity_id"], [[40, 2, "u"]])}, {}),
        ({"instances": PAIR[:1], "params": {"entity_id": "u"}}, {}),
        ({"inputs": PAIR[:1]}, {"X-Amzn-SageMaker-Custom-Attributes": "a=b;entity_id=u"}),
        ({"inputs": PAIR[:1]}, {"x-entity-id": "u"}),
    ],
)
async def test_an_entity_comes_in_a_row_a_parameter_an_attribute_or_a_header(start, body, headers):
    proxy = await start()

    response = await proxy.client.post(PATH, json=body, headers=headers)

    assert response.status_code == 200
    assert [row.entity_id for row in proxy.spool.rows] == ["u"]


@pytest.mark.parametrize(
    ("attributes", "entity"),
    [
        ("entity_id = Doe, Jane ; a=b", "Doe, Jane"),
        ("a=b,entity_id=u,c=d", "u"),
        ("some words; entity_id=u;", "u"),
        ("entity_id=u=v", "u=v"),
    ],
)
async def test_an_attribute_of_several_is_taken_whole(start, attributes, entity):
    proxy = await start()

    await proxy.client.post(PATH, json={"inputs": PAIR[:1]}, headers={"x-amzn-sagemaker-custom-attributes": attributes})

    assert [row.entity_id for row in proxy.spool.rows] == [entity]


async def test_attributes_that_differ_from_our_header_are_refused(start):
    proxy = await start()
    headers = {"x-entity-id": "a", "X-Amzn-SageMaker-Custom-Attributes": "entity_id=b"}

    response = await proxy.client.post(PATH, json={"inputs": PAIR}, headers=headers)

    assert (response.status_code, response.json()["code"]) == (400, "E104")


@pytest.mark.parametrize(
    ("path", "headers", "settings"),
    [
        ("/invocations", {"X-Amzn-SageMaker-Target-Model": "visits"}, {}),
        ("/invocations", {}, {"default_model": "visits"}),
        ("/invocations", VISITOR, {"auth": True}),
        ("/endpoints/visits/invocations", {}, {}),
        ("/endpoints/many/invocations", {"X-Amzn-SageMaker-Target-Model": "visits"}, {}),
        ("/serving-endpoints/visits/invocations", {}, {"default_model": "other"}),
    ],
)
async def test_the_model_is_named_by_header_path_or_setting_or_is_the_only_one_of_the_key(
    start, path, headers, settings
):
    proxy = await start(**settings)

    response = await proxy.client.post(path, json={"inputs": PAIR}, headers=headers)

    assert response.status_code == 200
    page = proxy.telemetry.exposition()[0].decode()
    assert 'dialect_calls_total{dialect="invocations",entity="none",model="visits"} 1.0' in page


async def test_where_nothing_names_one_of_several_models_the_caller_is_told_what_to_do(start):
    proxy = await start()

    response = await proxy.client.post("/invocations", json={"inputs": PAIR})

    assert (response.status_code, response.json()["code"]) == (404, "E201")
    assert "UNDERSTUDY_DEFAULT_MODEL" in response.json()["message"]


@pytest.mark.parametrize(
    ("variant", "status", "version"),
    [("2", 200, "2"), ("canary", 200, "2"), ("AllTraffic", 200, "1"), ("77", 404, None)],
)
async def test_a_variant_is_a_version_or_a_label(start, variant, status, version):
    proxy = await start(models={"visits": policy_rows(challenger_version=2, challenger_weight=0)})
    headers = {"X-Amzn-SageMaker-Target-Variant": variant, **KEY}

    response = await proxy.client.post(PATH, json={"inputs": PAIR}, headers=headers)

    assert response.status_code == status
    assert response.headers.get("x-amzn-invoked-production-variant") == version


async def test_ping_and_health_say_whether_the_proxy_is_ready_and_version_which_it_is(start):
    proxy = await start()

    assert [(await proxy.client.get(path)).status_code for path in ("/ping", "/health", "/version")] == [200] * 3
