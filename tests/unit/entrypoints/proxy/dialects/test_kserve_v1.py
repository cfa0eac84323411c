"""KServe V1 and TensorFlow Serving's REST API, through the application with in-memory parts."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
import pytest
from builders import KeptRows, a_version_row, an_input_schema, policy_rows

from understudy.adapters.memory.features import MemoryFeatureStore
from understudy.core.prediction_log.row import PredictionRow
from understudy.core.routing.route import bucket_of
from understudy.core.schema.tensors import Datatype, Row, Tensor
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM
from understudy.errors import BackendUnavailable, HeaderInvalid

PATH = "/v1/models/visits:predict"
KEY, VISITOR = {"authorization": "Bearer ops.secret"}, {"authorization": "Bearer visitor.secret"}
ROWS = [[40.0, 2.0], [30.0, 1.0]]


class RowsUntil(KeptRows):
    """Rows, and an event once there are so many."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self.are_there = asyncio.Event()

    def append(self, row: PredictionRow) -> bool:
        super().append(row)
        if len(self.rows) == self._count:
            self.are_there.set()
        return True


def logits(rows: Sequence[Row]) -> Tensor:
    """Answer each row with two values that JSON must not round."""
    values = [one for row in rows for one in struct.unpack("<2f", row[0])]
    return Tensor(Datatype.FP32, (len(rows), 2), np.array(values, "<f4") * np.float32(0.1), "logits")


def pair(rows: Sequence[Row]) -> Tensor:
    """Answer each row with its own two values."""
    values = np.concatenate([np.frombuffer(row[0], "<f4") for row in rows])
    return Tensor(Datatype.FP32, (len(rows), 2), values, "pair")


def pair_alone(rows: Sequence[Row]) -> Tensor:
    """Do the same as a model server without a dimension of the rows."""
    return replace(pair(rows), shape=(2,))


def split(**changes: Any) -> dict[str, Any]:
    return {"visits": policy_rows(**{"challenger_version": 2, "challenger_weight": 50, **changes})}


async def until(proxy: Any, name: str, value: Any) -> None:
    """Return once the model's document says so."""
    async with asyncio.timeout(5):
        while (await proxy.client.get("/v1/models/visits", headers=KEY)).json()[name] != value:  # noqa: ASYNC110
            await asyncio.sleep(0)


def assert_refused(response: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/json"
    assert body["code"] == code
    assert body["error"].startswith(code)
    assert "Next: " in body["error"]
    return body


@pytest.mark.parametrize(
    "body",
    [
        {"instances": ROWS},
        {"instances": [{"input": row} for row in ROWS]},
        {"instances": [{"age": age, "income": income} for age, income in ROWS]},
        {"instances": [{"income": [income], "age": age} for age, income in ROWS], "signature_name": "serving_default"},
    ],
)
async def test_rows_have_the_servers_own_values_whatever_they_are_written_as(start, body):
    proxy = await start(functions={"1": logits})

    response = await proxy.client.post(PATH, json=body)

    assert response.status_code == 200
    expected = np.array(ROWS, "<f4") * np.float32(0.1)
    assert np.array(response.json()["predictions"], "<f4").tobytes() == expected.tobytes()
    assert response.headers["x-model-version"] == "1"
    assert response.headers["x-prediction-id"] == proxy.spool.rows[0].prediction_id
    assert len(proxy.spool.rows) == 2


@pytest.mark.parametrize(
    "inputs",
    [ROWS, {"input": ROWS}, {"age": [40.0, 30.0], "income": [[2.0], [1.0]]}, {"age": [40, 30], "income": [2, 1]}],
)
async def test_columns_are_answered_as_columns(start, inputs):
    proxy = await start(functions={"1": logits})

    response = await proxy.client.post(PATH, json={"inputs": inputs})

    assert np.array(response.json()["outputs"], "<f4").tolist() == (np.array(ROWS, "<f4") * np.float32(0.1)).tolist()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
async def test_an_output_that_json_cannot_say_is_a_bad_answer_though_an_activation_makes_a_number_of_it(start, bad):
    row = a_version_row("1", output_schema={"activation": "sigmoid"})
    spoilt = {"1": lambda rows: Tensor(Datatype.FP32, (len(rows), 1), np.array([1, bad][: len(rows)], "<f4"))}
    proxy = await start(models={"visits": policy_rows(versions=[row])}, functions=spoilt)

    problem = assert_refused(await proxy.client.post(PATH, json={"instances": ROWS}), 502, "E502")

    assert problem["detail"] == "row 1: an output is NaN or infinite"
    assert [row.status for row in proxy.spool.rows] == ["ok", "bad_answer"]


@pytest.mark.parametrize("champion_batches", [True, False])
async def test_columns_keep_the_dimensions_that_their_caller_gave_them_whoever_answers(start, champion_batches):
    schemas = [an_input_schema(batch=batch) for batch in (champion_batches, not champion_batches)]
    versions = [a_version_row(str(n + 1), input_schema=schema) for n, schema in enumerate(schemas)]
    # The answering version's tensor has the rows' dimension, or has it not.
    answers = {"2": pair if not champion_batches else pair_alone}
    proxy = await start(models=split(challenger_weight=100, fallback=False, versions=versions), functions=answers)
    inputs: Any = {"input": [[1, 2], [3, 4]]} if champion_batches else {"input": [1, 2]}

    response = await proxy.client.post(PATH, json={"inputs": inputs})

    assert response.headers["x-model-version"] == "2"
    assert response.json() == {"outputs": [[1, 2], [3, 4]] if champion_batches else [1, 2]}


@pytest.mark.parametrize(
    ("name", "datatype", "value", "expected"),
    [
        ("score", Datatype.FP32, np.float32(0.1), b'{"outputs":0.1}'),
        ("word", Datatype.BYTES, b"ja", b'{"outputs":"ja"}'),
        ("word_bytes", Datatype.BYTES, b"ja", b'{"outputs":{"b64":"amE="}}'),
    ],
)
async def test_a_single_value_is_answered_as_itself(start, name, datatype, value, expected):
    row = a_version_row("1", input_schema=an_input_schema(batch=False))
    values = np.array([value], datatype.numpy_dtype if datatype is not Datatype.BYTES else object)
    proxy = await start(
        models={"visits": policy_rows(versions=[row])}, functions={"1": lambda _: Tensor(datatype, (), values, name)}
    )

    response = await proxy.client.post(PATH, json={"inputs": [1, 2]})

    assert (response.status_code, response.content) == (200, expected)


async def test_the_values_are_those_before_the_activation_and_the_score_is_the_one_after_it(start):
    row = a_version_row("1", output_schema={"activation": "sigmoid"})
    proxy = await start(models={"visits": policy_rows(versions=[row])})

    response = await proxy.client.post(PATH, json={"instances": [[0.0, 4.0]]})

    assert response.json() == {"predictions": [[2.0]]}
    assert proxy.spool.rows[0].score == pytest.approx(0.8807970)


async def test_a_hit_has_the_servers_values_too(start):
    proxy = await start(functions={"1": logits})

    first = await proxy.client.post(PATH, json={"instances": ROWS[:1]})
    again = await proxy.client.post(PATH, json={"instances": ROWS[:1]})

    assert first.headers["cache-status"] == "understudy; fwd=miss; stored; ttl=300"
    assert again.headers["cache-status"] == "understudy; hit"
    assert again.json() == first.json()
    assert len(proxy.backends["1"].calls) == 1


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"instances": [{"input": ROWS[0], "entity_id": "e-7"}]}, {}),
        ({"instances": [{"input": ROWS[0], "entity_id": ["e-7"]}]}, {}),
        ({"inputs": {"input": ROWS[:1], "entity_id": ["e-7"]}}, {}),
        ({"inputs": {"input": ROWS[:1], "entity_id": [["e-7"]]}}, {}),
        ({"instances": ROWS[:1], "entity_id": "e-7"}, {}),
        ({"instances": ROWS[:1], "parameters": {"entity_id": "e-7"}}, {}),
        ({"instances": ROWS[:1]}, {"x-entity-id": "e-7"}),
    ],
)
async def test_an_entity_is_named_by_row_by_parameter_or_by_header(start, body, headers):
    proxy = await start()

    response = await proxy.client.post(PATH, json=body, headers=headers)

    assert response.status_code == 200
    assert [row.entity_id for row in proxy.spool.rows] == ["e-7"]


async def test_rows_of_several_entities_meet_each_its_own_version(start):
    proxy = await start(models=split())
    entities = [f"e-{n}" for n in range(40)]

    response = await proxy.client.post(
        PATH, json={"instances": [{"input": [n, 0], "entity_id": entity} for n, entity in enumerate(entities)]}
    )

    assert [values[0] for values in response.json()["predictions"]] == [n / 2 for n in range(40)]
    assert response.headers["x-model-version"] == response.headers["x-model-role"] == "mixed"
    below = [entity for entity in entities if bucket_of("visits", entity) < 50]
    served = {row.entity_id: row.role for row in proxy.spool.rows}
    assert sorted(entity for entity, role in served.items() if role == "challenger") == sorted(below)
    assert 0 < len(below) < 40


async def test_a_call_without_an_entity_is_one_of_its_own_for_all_of_its_rows(start):
    proxy = await start(models=split())

    for _ in range(2):
        await proxy.client.post(PATH, json={"instances": ROWS})

    first, second, third, fourth = [row.entity_id for row in proxy.spool.rows]
    assert first == second != third == fourth
    assert first.startswith("call:")


async def test_a_call_without_an_entity_asks_no_feature_store_and_one_of_such_a_name_does(start):
    income = {"name": "income", "dtype": "float32", "source": "store", "default": 0}
    features = [{"name": "age", "dtype": "float32"}, income]
    row = a_version_row("1", input_schema=an_input_schema(features=features), timeout_ms=10_000)
    store = MemoryFeatureStore({("visits", "call:me"): {"income": 4}})
    proxy = await start(models={"visits": policy_rows(versions=[row])}, features=store)

    drawn = await proxy.client.post(PATH, json={"instances": [{"age": 2}]})
    named = await proxy.client.post(PATH, json={"instances": [{"age": 2}], "entity_id": "call:me"})

    assert (drawn.json(), named.json()) == ({"predictions": [[1]]}, {"predictions": [[3]]})
    assert [row.is_drawn for row in proxy.spool.rows] == [True, False]
    assert proxy.spool.rows[0].defaulted == ("income",)
    page = proxy.telemetry.exposition()[0].decode()
    assert "feature_missing_total{" not in page
    assert 'feature_fetch_total{outcome="ok"} 1.0' in page


async def test_a_call_without_an_entity_may_be_refused(start):
    proxy = await start(without_entity="refuse")

    body = assert_refused(await proxy.client.post(PATH, json={"instances": ROWS}), 422, "E102")

    assert "x-entity-id" in body["next"]
    assert proxy.spool.rows == []


async def test_an_error_about_a_header_points_at_no_place_of_the_body(start):
    proxy = await start()

    response = await proxy.client.post(PATH, json={"instances": ROWS}, headers={"x-entity-id": "x" * 256})

    problem = assert_refused(response, 422, "E102")
    assert problem["detail"].startswith("entity_id in x-entity-id: ")
    assert "errors" not in problem


async def test_two_places_that_name_different_entities_are_refused(start):
    proxy = await start()
    body = {"instances": ROWS, "entity_id": "u1"}

    problem = assert_refused(await proxy.client.post(PATH, json=body, headers={"x-entity-id": "u2"}), 422, "E102")

    assert problem["detail"] == "entity_id is 'u1' in the body and 'u2' in x-entity-id"


@pytest.mark.parametrize(
    ("body", "status", "code", "where"),
    [
        (b"{", 400, "E100", None),
        (b"[]", 400, "E100", None),
        (b'{"instances":[[NaN,1]]}', 400, "E100", None),
        (b"{}", 400, "E100", None),
        (b'{"instances":[],"inputs":[]}', 400, "E100", None),
        (b'{"instances":[]}', 422, "E105", "/instances"),
        (b'{"instances":[' + b",".join([b"[1,2]"] * 257) + b"]}", 422, "E105", "/instances"),
        (b'{"instances":{}}', 422, "E101", "/instances"),
        (b'{"instances":[[1]]}', 422, "E101", "/instances/0"),
        (b'{"instances":[[1,"x"]]}', 422, "E101", "/instances/0/1"),
        (b'{"instances":[[1,2],[131,2]]}', 422, "E101", "/instances/1/0"),
        (b'{"instances":[{"age":1}]}', 422, "E101", "/instances/0"),
        (b'{"instances":[{"age":1,"income":2,"x/y":3}]}', 422, "E101", "/instances/0/x~1y"),
        (b'{"instances":[{"age":1,"input":[1,2]}]}', 422, "E101", "/inputs"),
        (b'{"instances":[{"input":[1,2],"entity_id":"a"},{"input":[1,2]}]}', 422, "E101", "/instances"),
        (b'{"inputs":{"age":[1],"income":[1,2]}}', 422, "E101", "/inputs"),
        (b'{"inputs":{"age":[1,200],"income":[1,2]}}', 422, "E101", "/inputs/age/1"),
        (b'{"inputs":{"age":1,"income":[1,2]}}', 422, "E101", "/inputs/age"),
        (b'{"instances":[[1,2]],"signature_name":"x"}', 422, "E101", "/signature_name"),
        (b'{"instances":[[1,2]],"extra":1}', 422, "E101", "/extra"),
        (b'{"instances":[[1,2]],"entity_id":""}', 422, "E102", "/entity_id"),
        (b'"' + b"x" * 1_048_577 + b'"', 413, "E103", None),
    ],
)
async def test_bad_input_is_refused_with_what_and_where_in_the_protocols_own_form(start, body, status, code, where):
    proxy = await start()

    problem = assert_refused(await proxy.client.post(PATH, content=body), status, code)

    assert where is None or [one["pointer"] for one in problem.get("errors", [])] == [where]
    assert len(proxy.spool.rows) == (1 if where in {"/instances/1/0", "/inputs/age/1"} else 0)  # the good row of two


async def test_the_first_row_that_fails_fails_the_call_and_the_others_are_logged(start):
    proxy = await start(models=split(fallback=False))
    proxy.backends["2"].error = BackendUnavailable("it is down")
    champions = next(f"e-{n}" for n in range(99) if bucket_of("visits", f"e-{n}") >= 50)
    challengers = next(f"e-{n}" for n in range(99) if bucket_of("visits", f"e-{n}") < 50)
    instances = [{"input": [1, 2], "entity_id": one} for one in (champions, challengers)]

    response = await proxy.client.post(PATH, json={"instances": instances})

    problem = assert_refused(response, 503, "E503")
    assert problem["detail"].startswith("row 1: ")
    assert response.headers["retry-after"] == "1"
    assert response.headers["x-prediction-id"] == proxy.spool.rows[1].prediction_id
    assert [row.status for row in proxy.spool.rows] == ["ok", "unavailable"]


async def test_rows_whose_versions_answer_in_other_shapes_are_no_one_answer(start):
    proxy = await start(models=split(), functions={"2": logits})
    instances = [{"input": [1, 2], "entity_id": f"e-{n}"} for n in range(20)]

    problem = assert_refused(await proxy.client.post(PATH, json={"instances": instances}), 502, "E502")

    assert "1 and 2" in problem["detail"]
    assert 'http_requests_refused_total{code="E502"} 1.0' in proxy.telemetry.exposition()[0].decode()


@pytest.mark.parametrize("name", ["versions/2", "labels/canary"])
async def test_a_version_in_the_path_answers_for_who_may_force_it(start, name):
    proxy = await start(models=split(challenger_weight=0), auth=True)
    path = f"/v1/models/visits/{name}:predict"

    good = await proxy.client.post(path, json={"instances": ROWS}, headers=KEY)
    refused = await proxy.client.post(path, json={"instances": ROWS}, headers=VISITOR)

    assert good.headers["x-model-version"] == "2"
    assert {row.reason for row in proxy.spool.rows} == {"forced"}
    assert_refused(refused, 403, "E403")


@pytest.mark.parametrize("name", ["versions/1", "labels/stable", "labels/latest"])
async def test_the_champions_own_name_needs_no_more_than_any_call(start, name):
    proxy = await start(models=split(), auth=True)

    response = await proxy.client.post(f"/v1/models/visits/{name}:predict", json={"instances": ROWS}, headers=VISITOR)

    assert response.headers["x-model-version"] == "1"
    assert {row.reason for row in proxy.spool.rows} == {"forced"}


OPERATOR = {"id": "operator", "sha256": sha256(b"secret").hexdigest(), "scopes": ["operate"]}


@pytest.mark.parametrize("name", ["versions/1", "versions/2", "labels/stable"])
async def test_operate_alone_is_enough_for_a_version_in_the_path_as_on_our_own(start, name):
    proxy = await start(models=split(challenger_weight=0), auth=True, keys=[OPERATOR])
    key = {"authorization": "Bearer operator.secret"}

    response = await proxy.client.post(f"/v1/models/visits/{name}:predict", json={"instances": ROWS}, headers=key)
    unnamed = await proxy.client.post(PATH, json={"instances": ROWS}, headers=key)

    assert response.status_code == 200
    assert_refused(unnamed, 403, "E403")


async def test_a_version_that_is_the_champion_no_more_once_the_body_is_there_needs_operate(start):
    proxy = await start(models=split(challenger_weight=0), auth=True)
    body = iter([b'{"instances":', b"[[1,2]]}"])
    sent: list[Any] = []

    async def receive() -> Any:
        piece = next(body)
        if piece.endswith(b"}"):
            proxy.source.change_policy("visits", champion_version=2, challenger_version=1)
            await until(proxy, "champion", "2")
        return {"type": "http.request", "body": piece, "more_body": not piece.endswith(b"}")}

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/v1/models/visits/versions/1:predict"
    headers = [(b"authorization", b"Bearer visitor.secret")]
    await proxy.app(
        {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}, receive, send
    )

    assert sent[0]["status"] == 403
    assert proxy.spool.rows == []


@pytest.mark.parametrize("name", ["versions/77", "labels/blue", "labels/canary"])
async def test_a_version_or_label_that_there_is_not_is_named(start, name):
    proxy = await start()

    problem = assert_refused(await proxy.client.post(f"/v1/models/visits/{name}:predict", json={}), 404, "E202")

    assert name.partition("/")[2] in problem["detail"]


@pytest.mark.parametrize("action", [":predict", ":classify"])
async def test_version_0_is_none_as_clients_of_tensorflow_serving_write_it(start, action):
    proxy = await start(models=split(challenger_weight=100), auth=True)
    body = {"instances": ROWS} if action == ":predict" else {"examples": [{"age": 40.0, "income": 2.0}]}

    answer = await proxy.client.post(f"/v1/models/visits/versions/0{action}", json=body, headers=VISITOR)
    states = (await proxy.client.get("/v1/models/visits/versions/0", headers=KEY)).json()["model_version_status"]

    assert answer.headers["x-model-version"] == "2"
    assert {row.reason for row in proxy.spool.rows} == {"bucket"}
    assert [one["version"] for one in states] == ["1", "2", "3"]


async def test_a_version_that_is_really_called_0_is_meant_by_its_name(start):
    versions = [a_version_row(), a_version_row(id=2, version="0")]
    proxy = await start(models=split(versions=versions, challenger_weight=0), auth=True)

    refused = await proxy.client.post("/v1/models/visits/versions/0:predict", json={"instances": ROWS}, headers=VISITOR)

    assert_refused(refused, 403, "E403")


async def test_a_version_that_is_only_routed_by_must_exist_and_the_route_decides(start):
    proxy = await start(models=split(challenger_weight=100), named_version="routed", auth=True)
    ask = proxy.client.post

    named = await ask("/v1/models/visits/versions/1:predict", json={"instances": ROWS}, headers=VISITOR)
    unknown = await ask("/v1/models/visits/versions/77:predict", json={"instances": ROWS}, headers=VISITOR)

    assert named.headers["x-model-version"] == "2"
    assert {row.reason for row in proxy.spool.rows} == {"bucket"}
    assert_refused(unknown, 404, "E202")


async def test_each_row_is_charged_to_the_key(start):
    proxy = await start(auth=True, key_calls_per_second=3)

    first = await proxy.client.post(PATH, json={"instances": [[1, 2]] * 256}, headers=VISITOR)
    second = await proxy.client.post(PATH, json={"instances": [[1, 2]]}, headers=VISITOR)

    assert first.status_code == 200
    assert_refused(second, 429, "E429")
    page = proxy.telemetry.exposition()[0].decode()
    assert 'dialect_calls_total{dialect="v1",entity="none",model="visits"} 1.0' in page


async def test_a_caller_without_a_good_key_is_told_in_the_protocols_form(start):
    proxy = await start(auth=True)

    response = await proxy.client.post(PATH, json={"instances": ROWS})

    assert_refused(response, 401, "E401")
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_deadline_holds_for_all_rows(start):
    proxy = await start()
    proxy.backends["1"].delay_seconds = 5

    response = await proxy.client.post(PATH, json={"instances": ROWS}, headers={"x-request-timeout-ms": "30"})

    assert_refused(response, 504, "E504")
    assert [row.status for row in proxy.spool.rows] == ["timeout", "timeout"]


async def test_a_shadow_sees_each_row_once(start):
    spool = RowsUntil(4)
    proxy = await start(models={"visits": policy_rows(shadow_version=3)}, spool=spool)

    await proxy.client.post(PATH, json={"instances": [{"input": row, "entity_id": "a"} for row in ROWS]})
    await asyncio.wait_for(spool.are_there.wait(), 5)

    assert sorted(row.role for row in spool.rows) == ["champion", "champion", "shadow", "shadow"]


async def test_the_same_call_in_our_own_form_takes_the_same_way(start):
    proxy = await start(models=split())

    for entity in [f"e-{n}" for n in range(30)]:
        body = {"entity_id": entity, "inputs": {"age": 40, "income": 2}}
        await proxy.client.post("/v1/models/visits/predict", json=body)
        await proxy.client.post(PATH, json={"instances": [[40, 2]]}, headers={"x-entity-id": entity})

    rows = [
        (row.entity_id, row.model_version_id, row.role, row.reason, row.bucket, row.input_hash, row.score, row.status)
        for row in proxy.spool.rows
    ]
    assert rows[::2] == rows[1::2]


async def test_a_models_document_has_what_kserve_and_tensorflow_serving_read(start):
    proxy = await start(models=split())

    document = (await proxy.client.get("/v1/models/visits")).json()
    one = (await proxy.client.get("/v1/models/visits/versions/2")).json()
    stable = (await proxy.client.get("/v1/models/visits/labels/stable")).json()

    assert (document["name"], document["ready"], document["champion"]) == ("visits", True, "1")
    states = {state["version"]: state["state"] for state in document["model_version_status"]}
    assert states["1"] == states["2"] == "AVAILABLE"
    assert [state["version"] for state in one["model_version_status"]] == ["2"]
    assert stable["model_version_status"][0]["status"] == {"error_code": "OK", "error_message": ""}


async def test_a_model_whose_server_is_down_says_that_it_is_not_ready(start):
    proxy = await start()
    proxy.backends["1"].is_ready = False

    # What the probe finds is told to the clients that come later.
    await until(proxy, "ready", False)


async def test_a_method_that_a_path_does_not_answer_is_told_in_its_form(start):
    proxy = await start()

    response = await proxy.client.delete(PATH)

    assert_refused(response, 405, "E405")
    assert response.headers["allow"] == "GET, POST"


async def test_a_models_document_is_read_though_its_name_ends_in_a_verb(start):
    proxy = await start(models={"visits:predict": policy_rows()})

    response = await proxy.client.get("/v1/models/visits:predict")

    assert (response.status_code, response.json()["model"]) == (200, "visits:predict")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/visits/versions/1:explain"),
        ("POST", "/v1/models/visits:explain"),
        ("GET", "/v1/models/visits/metadata"),
        ("GET", "/v1/models/visits/versions/1/metadata"),
        ("GET", "/v2/models/visits/trace/setting"),
        ("POST", "/v2/repository/models/visits/load"),
        ("GET", "/v2/"),
    ],
)
async def test_what_other_servers_offer_and_the_proxy_does_not_is_told_in_their_form(start, method, path):
    proxy = await start()

    assert_refused(await proxy.client.request(method, path, json={}), 404, "E404")


class BrokenSpool(KeptRows):
    """A spool with a defect."""

    def append(self, row: PredictionRow) -> bool:
        raise LookupError(row.entity_id)


async def test_a_defect_is_told_in_the_protocols_form(start):
    proxy = await start(spool=BrokenSpool())

    assert_refused(await proxy.client.post(PATH, json={"instances": ROWS}), 500, "E500")


@pytest.mark.parametrize(
    ("path", "form"), [(PATH, b"application/json"), ("/v1/models/visits/predict", b"application/problem+json")]
)
async def test_a_head_that_is_refused_is_answered_in_the_form_of_its_path(start, path, form):
    proxy = await start()
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
    await proxy.app({**scope, HEAD_PROBLEM: HeaderInvalid("two of them")}, receive, send)

    assert (sent[0]["status"], dict(sent[0]["headers"])[b"content-type"]) == (400, form)


async def test_calls_are_counted_by_where_their_entity_was_found(start):
    proxy = await start()

    await proxy.client.post(PATH, json={"instances": ROWS})
    await proxy.client.post(PATH, json={"instances": ROWS[:1]}, headers={"x-entity-id": "a"})

    page = proxy.telemetry.exposition()[0].decode()
    assert 'dialect_calls_total{dialect="v1",entity="none",model="visits"} 1.0' in page
    assert 'dialect_calls_total{dialect="v1",entity="call",model="visits"} 1.0' in page


async def test_a_model_whose_name_holds_a_colon_or_a_slash_is_reached(start):
    proxy = await start()

    response = await proxy.client.post("/v1/models/a%2Fb:predict", content=orjson.dumps({"instances": ROWS[:1]}))

    assert response.headers["x-model-version"] == "7/x"


async def test_the_process_says_that_it_lives(start):
    proxy = await start(auth=True)

    response = await proxy.client.get("/")

    assert (response.status_code, response.json()) == (200, {"status": "alive"})
