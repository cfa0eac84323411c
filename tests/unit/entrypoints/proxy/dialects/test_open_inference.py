"""The Open Inference Protocol over REST, through the application with in-memory parts."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from builders import a_version_row, an_input_schema, policy_rows

from understudy.core.routing.route import bucket_of
from understudy.core.schema.tensors import Datatype, Row, Tensor

PATH = "/v2/models/visits/infer"
KEY, VISITOR = {"authorization": "Bearer ops.secret"}, {"authorization": "Bearer visitor.secret"}
ROWS = np.array([[40.1, 2.7], [30.3, 1e-3]], "<f4")
OUTPUT = {"tensor": "logits", "dtype": "float32", "shape": [2]}


def tenth(rows: Sequence[Row]) -> Tensor:
    values = np.array([one for row in rows for one in struct.unpack("<2f", row[0])], "<f4") * np.float32(0.1)
    return Tensor(Datatype.FP32, (len(rows), 2), values, "logits")


EXPECTED = ROWS * np.float32(0.1)


def tensor(values: Any = None, **changes: Any) -> dict[str, Any]:
    found = ROWS if values is None else np.array(values, "<f4")
    whole = {"name": "input", "datatype": "FP32", "shape": list(found.shape), "data": found.ravel().tolist()}
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def features(rows: int = 2) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": "FP32", "shape": [rows, 1], "data": ROWS[:rows, place].tolist()}
        for place, name in enumerate(("age", "income"))
    ]


def binary(header: dict[str, Any], *contents: bytes) -> tuple[bytes, dict[str, str]]:
    text = orjson.dumps(header)
    return text + b"".join(contents), {"inference-header-content-length": str(len(text))}


def assert_refused(response: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert response.headers["content-type"] == "application/json"
    assert body["error"].startswith(code)
    assert "Next: " in body["error"]
    return body


def with_more(rows: Sequence[Row]) -> Tensor:
    """Answer with outputs beside the judged one: a number that JSON has not, and bytes that are no text."""
    ranks = Tensor(Datatype.FP64, (len(rows), 1), np.full(len(rows), np.inf), "rank")
    words = np.array([b"\xff%d" % place for place in range(len(rows))], object)
    return replace(tenth(rows), beside=(ranks, Tensor(Datatype.BYTES, (len(rows),), words, "raw_bytes")))


def of_one_row_less(rows: Sequence[Row]) -> Tensor:
    return replace(tenth(rows), beside=(Tensor(Datatype.FP64, (1,), np.zeros(1), "rank"),))


async def with_also(
    start: Any, also: Sequence[str] = ("rank", "raw_bytes"), function: Any = with_more, **options: Any
) -> Any:
    schema = {**OUTPUT, "also": list(also)}
    rows = [
        a_version_row("1", output_schema=schema, timeout_ms=10_000),
        a_version_row("2", output_schema=OUTPUT, timeout_ms=10_000),
    ]
    models = {"visits": policy_rows(versions=rows, **options)}
    return await start(functions={"1": function, "2": tenth}, models=models)


@pytest.mark.parametrize("names", [["rank"], ["rank", "logits"], ["logits"]])
async def test_outputs_beside_the_judged_one_may_be_named(start, names):
    proxy = await with_also(start)
    body = {"inputs": [tensor()], "outputs": [{"name": name} for name in names]}

    found = {one["name"]: one for one in (await proxy.client.post(PATH, json=body)).json()["outputs"]}

    assert list(found) == names
    if "rank" in names:
        assert found["rank"] == {"name": "rank", "datatype": "FP64", "shape": [2, 1], "data": [None, None]}
    assert all(row.error_code is None for row in proxy.spool.rows)


async def test_without_names_all_outputs_come_as_the_server_gives_them(start):
    proxy = await with_also(start)
    body = {"inputs": [tensor()], "parameters": {"binary_data_output": True}}

    answers = [await proxy.client.post(PATH, json=body) for _ in range(2)]
    as_text = await proxy.client.post(PATH, json={"inputs": [tensor()]})

    whole = answers[0].content
    length = int(answers[0].headers["inference-header-content-length"])
    outputs = orjson.loads(whole[:length])["outputs"]
    assert [one["name"] for one in outputs] == ["logits", "rank", "raw_bytes"]
    assert whole[length:] == EXPECTED.tobytes() + np.full(2, np.inf).tobytes() + b"\2\0\0\0\xff0\2\0\0\0\xff1"
    assert answers[1].headers["cache-status"] == "understudy; hit"
    assert answers[1].content[-40:] == whole[-40:]
    assert "'raw_bytes' is no text" in assert_refused(as_text, 502, "E502")["detail"]


async def test_a_name_that_is_neither_is_refused_with_all_that_there_are(start):
    proxy = await with_also(start)

    answer = await proxy.client.post(PATH, json={"inputs": [tensor()], "outputs": [{"name": "y"}]})

    body = assert_refused(answer, 422, "E101")
    assert "has no output 'y'; it has: logits, rank, raw_bytes" in body["error"]
    assert proxy.spool.rows == []


async def test_an_output_that_has_not_the_rows_fails_who_gets_it_and_nobody_else(start):
    proxy = await with_also(start, ("rank",), of_one_row_less)
    native = {"entity_id": "a", "inputs": {"age": 1, "income": 2}}

    refused = await proxy.client.post(PATH, json={"inputs": [tensor()]})
    answered = await proxy.client.post("/v1/models/visits/predict", json=native)

    assert_refused(refused, 502, "E502")
    assert answered.status_code == 200


async def test_rows_of_versions_with_other_outputs_are_one_answer_only_of_the_judged_one(start):
    proxy = await with_also(start, challenger_version=2, challenger_weight=50)
    names = [f"customer-{number}" for number in range(8)]
    rows = {
        "inputs": [tensor([[1.0, 2.0]] * 8), {"name": "entity_id", "datatype": "BYTES", "shape": [8], "data": names}]
    }

    judged = await proxy.client.post(PATH, json={**rows, "outputs": [{"name": "logits"}]})
    every = await proxy.client.post(PATH, json=rows)

    assert judged.json()["model_version"] == "mixed"
    assert_refused(every, 502, "E502")


async def test_rows_as_json_are_objects_where_there_are_several_outputs(start):
    proxy = await with_also(start)
    ask = proxy.client.post

    rows = await ask("/v1/models/visits:predict", json={"instances": ROWS.tolist()})
    columns = await ask("/v1/models/visits:predict", json={"inputs": ROWS.tolist()})
    alone = await ask("/v1/models/visits/invocations", json={"inputs": ROWS.tolist()})

    first = rows.json()["predictions"][0]
    assert np.array(first["logits"], "<f4").tobytes() == EXPECTED[0].tobytes()
    assert (first["rank"], first["raw_bytes"]) == ([None], {"b64": "/zA="})
    assert columns.json()["outputs"]["raw_bytes"] == [{"b64": "/zA="}, {"b64": "/zE="}]
    assert alone.json()["predictions"] == columns.json()["outputs"]["logits"]


@pytest.fixture
async def up(start):
    rows = [a_version_row(label, output_schema=OUTPUT, timeout_ms=10_000) for label in ("1", "2")]
    return await start(functions={"1": tenth, "2": tenth}, models={"visits": policy_rows(versions=rows)})


@pytest.mark.parametrize(
    "inputs",
    [[tensor()], [tensor(data=[[40.1, 2.7], [30.3, 1e-3]])], features(), [tensor(shape=[2], data=[40.1, 2.7])]],
)
async def test_tensors_as_json_are_answered_with_the_servers_own(up, inputs):
    response = await up.client.post(PATH, json={"inputs": inputs, "id": "mine"})

    answer = response.json()
    rows = 1 if inputs[0]["shape"] == [2] else 2
    (output,) = answer.pop("outputs")
    assert np.array(output.pop("data"), "<f4").tobytes() == EXPECTED[:rows].tobytes()
    assert output == {"name": "logits", "datatype": "FP32", "shape": [rows, 2]}
    ids = [row.prediction_id for row in up.spool.rows]
    parameters = {"prediction_id": ids[0], "generation": 1, "role": "champion"}
    parameters |= {"prediction_ids": ",".join(ids)} if rows > 1 else {}
    assert answer == {"model_name": "visits", "model_version": "1", "id": "mine", "parameters": parameters}
    assert response.headers["x-prediction-id"] == ids[0]


async def test_bytes_behind_the_json_come_in_and_go_out_bit_for_bit(up):
    inputs = [tensor(data=None, parameters={"binary_data_size": 16})]
    header = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    body, headers = binary(header, ROWS.tobytes())

    response = await up.client.post(PATH, content=body, headers=headers)

    assert response.headers["content-type"] == "application/octet-stream"
    length = int(response.headers["inference-header-content-length"])
    (output,) = orjson.loads(response.content[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 16}
    assert response.content[length:] == EXPECTED.tobytes()


async def test_the_output_that_is_named_comes_as_it_is_asked_for(up):
    named = {"name": "logits", "parameters": {"binary_data": True}}

    as_bytes = await up.client.post(PATH, json={"inputs": [tensor()], "outputs": [named]})
    as_json = await up.client.post(PATH, json={"inputs": [tensor()], "outputs": [{"name": "logits"}]})

    assert as_bytes.content.endswith(EXPECTED.tobytes())
    assert np.array(as_json.json()["outputs"][0]["data"], "<f4").tobytes() == EXPECTED.tobytes()


async def test_strings_go_in_and_out_as_json_and_as_bytes(start):
    schema = an_input_schema(features=[{"name": "word", "dtype": "string", "enum": ["jä", "no"]}], tensors=None)
    del schema["tensors"]
    row = a_version_row("1", input_schema=schema)
    shout = {"1": lambda rows: Tensor(Datatype.BYTES, (len(rows), 1), np.array([one[0][4:] for one in rows], object))}
    proxy = await start(functions=shout, models={"visits": policy_rows(versions=[row])})
    words = {"name": "word", "datatype": "BYTES", "shape": [2]}
    content = b"\3\0\0\0j\xc3\xa4\2\0\0\0no"
    body, headers = binary(
        {"inputs": [{**words, "parameters": {"binary_data_size": len(content)}}],
         "parameters": {"binary_data_output": True}}, content,
    )  # fmt: skip

    as_json = await proxy.client.post(PATH, json={"inputs": [{**words, "data": ["jä", "no"]}]})
    as_bytes = await proxy.client.post(PATH, content=body, headers=headers)

    output = {"name": "output", "datatype": "BYTES", "shape": [2, 1], "data": ["jä", "no"]}
    assert as_json.json()["outputs"] == [output]
    assert as_bytes.content.endswith(content)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_body_may_be_compressed_both_ways(up, coding):
    body = orjson.dumps({"inputs": [tensor()]})
    deflated = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    headers = {"content-encoding": coding, "accept-encoding": coding}

    response = await up.client.post(PATH, content=deflated, headers=headers)

    assert response.headers["content-encoding"] == coding
    assert np.array(response.json()["outputs"][0]["data"], "<f4").tobytes() == EXPECTED.tobytes()


@pytest.mark.parametrize(
    ("body", "coding", "status", "code"),
    [
        (gzip.compress(b" " * 8_000_000), "gzip", 413, "E103"),
        (zlib.compress(b" " * 8_000_000), "deflate", 413, "E103"),
        (gzip.compress(b"{}")[:-4], "gzip", 400, "E100"),
        (gzip.compress(b"{}") * 2, "gzip", 400, "E100"),
        (b"{}", "gzip", 400, "E100"),
        (b"{}", "br", 400, "E104"),
    ],
    ids=["bomb of gzip", "bomb of zlib", "cut short", "two of them", "not compressed", "another coding"],
)
async def test_a_compressed_body_that_cannot_be_used_is_refused(up, body, coding, status, code):
    response = await up.client.post(PATH, content=body, headers={"content-encoding": coding})

    assert_refused(response, status, code)


async def test_a_key_pays_for_a_body_as_it_is_once_it_is_inflated(start):
    proxy = await start(auth=True, key_bytes_per_second=1_000)
    body = gzip.compress(orjson.dumps(one()) + b" " * 100_000)
    headers = {**KEY, "content-encoding": "gzip"}

    first = await proxy.client.post(PATH, content=body, headers=headers)
    second = await proxy.client.post(PATH, content=body, headers=headers)

    assert len(body) < 1_000
    assert first.status_code == 200
    assert_refused(second, 429, "E429")
    assert int(second.headers["retry-after"]) > 60


@pytest.mark.parametrize(
    ("entity", "headers", "parameters"),
    [
        ({"name": "entity_id", "datatype": "BYTES", "shape": [2, 1], "data": ["e-1", "e-2"]}, {}, {}),
        ({"name": "entity_id", "datatype": "INT64", "shape": [2], "data": [1, 2]}, {}, {}),
        (None, {}, {"entity_id": "e-7"}),
        (None, {}, {"entity_id": 7}),
        (None, {"x-entity-id": "e-7"}, {}),
    ],
)
async def test_an_entity_is_named_by_row_by_parameter_or_by_header(up, entity, headers, parameters):
    inputs = [tensor(), *([entity] if entity else [])]

    response = await up.client.post(PATH, json={"inputs": inputs, "parameters": parameters}, headers=headers)

    assert response.status_code == 200
    named = [str(one) for one in entity["data"]] if entity else [str(parameters.get("entity_id", "e-7"))] * 2
    assert [row.entity_id for row in up.spool.rows] == named


async def test_rows_of_several_entities_meet_each_its_own_version(start):
    proxy = await start(models={"visits": policy_rows(challenger_version=2, challenger_weight=50)})
    entities = [f"e-{n}" for n in range(40)]
    named = {"name": "entity_id", "datatype": "BYTES", "shape": [40], "data": entities}

    response = await proxy.client.post(PATH, json={"inputs": [tensor([[n, 0] for n in range(40)]), named]})

    answer = response.json()
    assert answer["outputs"][0]["data"] == [n / 2 for n in range(40)]
    assert answer["model_version"] == answer["parameters"]["role"] == "mixed"
    served = {row.entity_id: row.role for row in proxy.spool.rows}
    assert {e for e, role in served.items() if role == "challenger"} == {
        e for e in entities if bucket_of("visits", e) < 50
    }


def one(**changes: Any) -> dict[str, Any]:
    return {"inputs": [tensor(**changes)]}


@pytest.mark.parametrize(
    ("document", "status", "code", "where"),
    [
        ([], 400, "E100", None),
        ({}, 422, "E101", "/inputs"),
        ({"inputs": []}, 422, "E101", "/inputs"),
        ({"inputs": [1]}, 422, "E101", "/inputs/0"),
        (one(name=""), 422, "E101", "/inputs/0/name"),
        (one(name="x"), 422, "E101", "/inputs/0/name"),
        ({"inputs": [tensor(), tensor()]}, 422, "E101", "/inputs/1/name"),
        (one(datatype="FP64"), 422, "E101", "/inputs/0/datatype"),
        (one(datatype="FP16"), 422, "E101", "/inputs/0/datatype"),
        (one(datatype=7), 422, "E101", "/inputs/0/datatype"),
        (one(shape=[-1, 2]), 422, "E101", "/inputs/0/shape"),
        (one(shape=[2, 3]), 422, "E101", "/inputs/0/shape"),
        (one(shape=[2**62, 2]), 422, "E105", "/inputs/0/shape"),
        (one(shape=[1] * 65), 422, "E101", "/inputs/0/shape"),
        (one(shape=[0, 2], data=[]), 422, "E105", "/inputs/0/shape"),
        (one(shape=[257, 2], data=[1] * 514), 422, "E105", "/inputs/0/shape"),
        (one(data=[1, 2, 3]), 422, "E101", "/inputs/0/data"),
        (one(data=[[1, 2], 3, 4]), 422, "E101", "/inputs/0/data"),
        (one(data={}), 422, "E101", "/inputs/0/data"),
        (one(data=[1, 2, 3, "x"]), 422, "E101", "/inputs/0/data/3"),
        ({"inputs": features()[:1]}, 422, "E101", "/inputs"),
        ({"inputs": [tensor(), features()[0]]}, 422, "E101", "/inputs"),
        ({"inputs": [features(1)[0], features()[1]]}, 422, "E101", "/inputs"),
        (one(data=None), 400, "E100", None),
        (one(parameters={"binary_data_size": 16}), 400, "E100", None),
        (one(data=None, parameters={"binary_data_size": -1}), 422, "E101", "/inputs/0/parameters/binary_data_size"),
        (one(data=None, parameters={"binary_data_size": 16}), 400, "E100", None),
        (one(parameters={"shared_memory_region": "r"}), 501, "E111", None),
        ({**one(), "parameters": {"sequence_id": 7}}, 501, "E111", None),
        ({**one(), "parameters": {"timeout": "soon"}}, 422, "E101", "/parameters/timeout"),
        ({**one(), "parameters": []}, 422, "E101", "/parameters"),
        ({**one(), "id": 7}, 422, "E101", "/id"),
        ({**one(), "outputs": [{"name": "y"}]}, 422, "E101", "/outputs/0/name"),
        ({**one(), "outputs": [{"name": "logits"}] * 2}, 422, "E101", "/outputs/1/name"),
        ({**one(), "outputs": [{"name": "logits", "parameters": {"classification": 3}}]}, 501, "E111", None),
        ({**one(), "outputs": [7]}, 422, "E101", "/outputs/0"),
        ({**one(), "parameters": {"entity_id": ""}}, 422, "E102", "/parameters/entity_id"),
        ({**one(), "parameters": {"entity_id": True}}, 422, "E102", "/parameters/entity_id"),
    ],
)
async def test_bad_input_is_refused_with_what_and_where(up, document, status, code, where):
    problem = assert_refused(await up.client.post(PATH, json=document), status, code)

    assert where is None or {place["pointer"] for place in problem.get("errors", [])} == {where}
    assert where is None or where in problem["error"]


@pytest.mark.parametrize(
    ("content", "size", "length", "code"),
    [
        (ROWS.tobytes()[:-1], 15, 0, "E100"),
        (ROWS.tobytes() + b"x", 16, 0, "E100"),
        (ROWS.tobytes(), 17, 0, "E100"),
        (ROWS.tobytes(), 16, 1_000, "E100"),
        (ROWS.tobytes(), 16, -1, "E100"),
        (np.array([1, np.nan, 2, np.inf], "<f4").tobytes(), 16, 0, "E101"),
    ],
)
async def test_bytes_that_are_not_what_the_json_says_are_refused(up, content, size, length, code):
    body, headers = binary({"inputs": [tensor(data=None, parameters={"binary_data_size": size})]}, content)
    headers = {name: str(int(value) + length) for name, value in headers.items()}

    problem = assert_refused(
        await up.client.post(PATH, content=body, headers=headers), 400 if code == "E100" else 422, code
    )

    if code == "E101":
        assert [place["pointer"] for place in problem["errors"]] == ["/inputs/0/data/1", "/inputs/0/data/3"]
    assert up.spool.rows == []


@pytest.mark.parametrize("content", [b"\x09\0\0\0no", b"\2\0\0\0no\1\0\0\0", b"\2\0\0\0n\xff", b"\2\0\0\0n\0"])
async def test_strings_that_cannot_be_read_are_refused(start, content):
    schema = an_input_schema(features=[{"name": "word", "dtype": "string"}])
    del schema["tensors"]
    proxy = await start(models={"visits": policy_rows(versions=[a_version_row("1", input_schema=schema)])})
    parameters = {"binary_data_size": len(content)}
    body, headers = binary(
        {"inputs": [{"name": "word", "datatype": "BYTES", "shape": [1], "parameters": parameters}]}, content
    )

    response = await proxy.client.post(PATH, content=body, headers=headers)

    assert response.status_code in (400, 422)
    assert "word" in response.json()["detail"] or response.json()["errors"][0]["pointer"] == "/inputs/0/data/0"


async def test_a_deadline_may_come_as_a_parameter(up):
    up.backends["1"].delay_seconds = 5

    assert_refused(await up.client.post(PATH, json={**one(), "parameters": {"timeout": 30_000}}), 504, "E504")


async def test_a_version_in_the_path_answers_for_who_may_force_it(start):
    proxy = await start(models={"visits": policy_rows(challenger_version=2)}, auth=True)
    path = "/v2/models/visits/versions/2/infer"

    good = await proxy.client.post(path, json=one(), headers=KEY)
    refused = await proxy.client.post(path, json=one(), headers=VISITOR)

    assert good.json()["model_version"] == "2"
    assert {row.reason for row in proxy.spool.rows} == {"forced"}
    assert_refused(refused, 403, "E403")


async def test_a_receipt_without_versions_names_the_one_that_was_asked_for_or_none(start):
    proxy = await start(version_headers=False)

    routed = (await proxy.client.post(PATH, json=one())).json()
    named = (await proxy.client.post("/v2/models/visits/versions/1/infer", json=one())).json()

    assert "model_version" not in routed
    assert "role" not in routed["parameters"]
    assert named["model_version"] == "1"


async def test_the_same_call_in_our_own_form_takes_the_same_way(start):
    proxy = await start(models={"visits": policy_rows(challenger_version=2, challenger_weight=50)})

    for entity in [f"e-{n}" for n in range(30)]:
        body = {"entity_id": entity, "inputs": {"age": 40.5, "income": 2}}
        await proxy.client.post("/v1/models/visits/predict", json=body)
        await proxy.client.post(PATH, json=one(values=[[40.5, 2]]), headers={"x-entity-id": entity})

    rows = [
        (row.entity_id, row.model_version_id, row.role, row.reason, row.bucket, row.input_hash, row.score, row.status)
        for row in proxy.spool.rows
    ]
    assert rows[::2] == rows[1::2]


async def test_what_clients_ask_before_they_call(up):
    async def get(path: str) -> Any:
        response = await up.client.get(path)
        assert response.status_code == 200, path
        return response.json()

    assert await get("/v2/health/live") == {"live": True}
    assert await get("/v2/health/ready") == {"ready": True, "live": True}
    assert (await get("/v2"))["extensions"] == ["binary_tensor_data", "parameters", "model_configuration", "statistics"]
    assert await get("/v2/models/visits/ready") == {"name": "visits", "ready": True}
    assert await get("/v2/models/visits/versions/2/ready") == {"name": "visits", "ready": True}
    metadata = await get("/v2/models/visits")
    assert metadata == {
        "name": "visits",
        "versions": ["1", "2"],
        "platform": "understudy",
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}],
    }
    config = await get("/v2/models/visits/versions/1/config")
    assert config["max_batch_size"] == 256
    assert config["input"] == [{"name": "input", "data_type": "TYPE_FP32", "dims": [2]}]


async def test_a_caller_may_ask_who_answered_each_row_as_an_output(start):
    proxy = await start(models={"visits": policy_rows(challenger_version=2, challenger_weight=50)})
    entities = [f"e-{n}" for n in range(4)]
    named = {"name": "entity_id", "datatype": "BYTES", "shape": [4], "data": entities}
    inputs = [tensor([[n, 0] for n in range(4)]), named]

    alone = await proxy.client.post(PATH, json={"inputs": inputs, "outputs": [{"name": "understudy_version"}]})

    (versions,) = alone.json()["outputs"]
    labels = ["2" if bucket_of("visits", entity) < 50 else "1" for entity in entities]
    assert versions == {"name": "understudy_version", "datatype": "BYTES", "shape": [4], "data": labels}


async def test_who_answered_comes_beside_the_models_own_output_and_not_where_operators_hide_it(up, start):
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in ("understudy_version", "logits")]
    both = await up.client.post(PATH, json={"inputs": [tensor()], "outputs": wanted})
    hiding = await start(version_headers=False)
    hidden = await hiding.client.post(PATH, json={"inputs": [tensor()], "outputs": wanted[:1]})

    assert both.content.endswith(b"\x01\x00\x00\x001" * 2 + EXPECTED.tobytes())
    assert_refused(hidden, 422, "E101")


async def test_the_statistics_have_the_calls_of_each_version_that_a_key_may_know(up):
    for _ in range(3):
        assert (await up.client.post(PATH, json=one())).status_code == 200

    model = (await up.client.get("/v2/models/visits/stats")).json()["model_stats"]
    version = (await up.client.get("/v2/models/visits/versions/2/stats")).json()["model_stats"]
    every = (await up.client.get("/v2/models/stats")).json()["model_stats"]

    assert [found["version"] for found in model] == ["1", "2"]
    first, second = model
    assert first["inference_stats"]["success"]["count"] == first["inference_count"] == 6  # two rows each
    assert first["inference_stats"]["success"]["ns"] > 0 < first["last_inference"]
    assert version == [second]
    assert second["inference_count"] == second["last_inference"] == second["inference_stats"]["fail"]["count"] == 0
    assert first in every


async def test_the_repository_index_has_the_models_that_a_key_may_know(start):
    proxy = await start(auth=True)

    every = await proxy.client.post("/v2/repository/index", headers=KEY)
    none = await proxy.client.post("/v2/repository/index", headers=VISITOR)

    assert {"name": "a/b", "version": "7/x", "state": "READY", "reason": ""} in every.json()
    assert_refused(none, 403, "E403")


async def test_a_model_or_a_process_that_cannot_answer_is_503(start):
    proxy = await start(registry_answers=False)
    up = await start()
    up.backends["1"].is_ready = False

    assert (await proxy.client.get("/v2/health/ready")).status_code == 503
    assert (await up.client.get("/v2/models/visits/ready")).status_code == 503
    assert_refused(await proxy.client.get("/v2/models/visits"), 503, "E506")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/models/visits/trace/setting", 404, "E404"),
        ("GET", "/v2/models/unknown/stats", 404, "E201"),
        ("GET", "/v2/models/visits/versions/77/stats", 404, "E202"),
        ("GET", "/v2/", 404, "E404"),
        ("GET", PATH, 405, "E405"),
        ("GET", "/v2/models/unknown", 404, "E201"),
        ("GET", "/v2/models/visits/versions/77", 404, "E202"),
        ("POST", "/v2/models/unknown/infer", 404, "E201"),
    ],
)
async def test_what_there_is_not_is_told_in_the_protocols_form(start, method, path, status, code):
    proxy = await start()

    assert_refused(await proxy.client.request(method, path, json={}), status, code)


async def test_parameters_that_are_no_requests_own_are_ignored(up):
    response = await up.client.post(PATH, json={**one(), "parameters": {"priority": 1, "triton_final_response": True}})

    assert response.status_code == 200


async def test_an_output_that_its_schema_leaves_open_is_left_out_of_the_metadata(start):
    proxy = await start()

    assert (await proxy.client.get("/v2/models/visits")).json()["outputs"] == []


@pytest.mark.parametrize("champion_batches", [True, False])
async def test_an_output_has_the_dimensions_that_its_caller_gave_the_inputs_whoever_answers(start, champion_batches):
    batches = (champion_batches, not champion_batches)
    rows = [a_version_row(str(n + 1), input_schema=an_input_schema(batch=batch)) for n, batch in enumerate(batches)]
    policy = policy_rows(versions=rows, challenger_version=2, challenger_weight=100, fallback=False)
    values = np.array([7], "<f4")
    answers = {"2": lambda sent: Tensor(Datatype.FP32, () if champion_batches else (len(sent),), values, "score")}
    proxy = await start(functions=answers, models={"visits": policy})
    shape = [1, 2] if champion_batches else [2]

    response = await proxy.client.post(PATH, json=one(shape=shape, data=[1, 2]))

    expected = {"name": "score", "datatype": "FP32", "shape": [1] if champion_batches else [], "data": [7]}
    assert response.json()["outputs"] == [expected]
