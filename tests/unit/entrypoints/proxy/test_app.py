import asyncio
import re
from typing import Any

import pytest

from understudy.errors import BackendUnavailable, BadAnswer

PATH = "/v1/models/visits/predict"
BODY = {"entity_id": "customer-42", "inputs": {"age": 40, "income": 2}}
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert response.status_code == status, body
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]
    assert (body["status"], body["code"]) == (status, code)
    assert body["error"] == body["title"]
    assert body["detail"]
    assert body["next"]
    return body


async def test_a_prediction_and_its_receipt(start):
    proxy = await start()

    response = await proxy.client.post(PATH, json=BODY, headers={"x-request-id": "mine"})

    assert response.status_code == 200
    answer = response.json()
    assert answer["prediction"] == {"score": 21.0}
    assert (answer["model"], answer["version"], answer["role"], answer["generation"]) == ("visits", "1", "champion", 1)
    assert UUID7.fullmatch(answer["prediction_id"])
    headers = response.headers
    assert headers["x-model-version"] == "1"
    assert headers["x-model-role"] == "champion"
    assert headers["x-prediction-id"] == answer["prediction_id"]
    assert headers["x-policy-generation"] == "1"
    assert headers["x-request-id"] == "mine"
    assert headers["cache-status"] == "understudy; fwd=miss; stored; ttl=300"
    assert "upstream;dur=" in headers["server-timing"]
    again = await proxy.client.post(PATH, json=BODY)
    assert again.headers["cache-status"] == "understudy; hit"


async def test_the_lane_and_fastapi_give_the_same_answer(start):
    """FastAPI's own routes stay an equal way in: what unusual requests take."""
    proxy = await start()
    api = proxy.app._app  # noqa: SLF001 - the application inside the lane

    async def ask(app: Any, body: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes, dict[bytes, bytes]]:
        sent: list[Any] = []
        scope = {
            "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
            "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("proxy", 80), "root_path": "",
        }  # fmt: skip
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        varying = (b"x-prediction-id", b"x-request-id", b"server-timing", b"cache-status")
        headers_sent = {name: value for name, value in sent[0]["headers"] if name not in varying}
        return sent[0]["status"], sent[1]["body"], headers_sent

    bodies = [b"", b"{", b"[]", b'{"entity_id":"a","inputs":{}}', b'{"entity_id":"a","inputs":{"age":1,"income":2}}']
    bodies.append(b'{"entity_id":"a","inputs":{"age":1,"income":2},"x":"' + b"x" * 1_100_000 + b'"}')
    for body in bodies:
        for headers in ([], [(b"x-request-timeout-ms", b"x")], [(b"authorization", b"Bearer nobody.x")]):
            through_lane, through_api = await ask(proxy.app, body, headers), await ask(api, body, headers)
            same_id = re.compile(rb'"prediction_id":"[^"]+"')
            assert same_id.sub(b"", through_lane[1]) == same_id.sub(b"", through_api[1])
            assert (through_lane[0], through_lane[2]) == (through_api[0], through_api[2])


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "E100"),
        (b"not json", 400, "E100"),
        (b'{"entity_id":"a","inputs":{"age":NaN}}', 400, "E100"),
        (b'{"entity_id":"a","entity_id":"b","inputs":{}}', 400, "E100"),
        (b'{"entity_id":"a\\u0000","inputs":{}}', 400, "E100"),
        (b'{"entity_id":"a","inputs":{"age":18446744073709551616}}', 400, "E100"),
        (b"[" * 5000, 400, "E100"),
        (b'"' + b"x" * 1_048_577 + b'"', 413, "E103"),
        (b'{"inputs":{}}', 422, "E102"),
        (b'{"entity_id":"","inputs":{}}', 422, "E102"),
        (b'{"entity_id":"' + b"e" * 256 + b'","inputs":{}}', 422, "E102"),
        (b'{"entity_id":"a","inputs":{"age":"old","income":1}}', 422, "E101"),
        (b'{"entity_id":"a","inputs":{"age":1,"income":1,"extra":1}}', 422, "E101"),
        (b'{"entity_id":"a","inputs":{"age":[1],"income":1}}', 422, "E101"),
        (b'{"entity_id":"a","inputs":{"age":131,"income":1}}', 422, "E101"),
    ],
)
async def test_bad_input_is_refused_with_what_and_where(start, body, status, code):
    proxy = await start()

    response = await proxy.client.post(PATH, content=body)

    problem = assert_problem(response, status, code)
    if status == 422:
        assert all(entry["pointer"].startswith("/") for entry in problem["errors"])
    if code == "E100":
        assert "byte" in problem["detail"]
    assert proxy.spool.rows == []


async def test_an_unknown_model_is_404(start):
    proxy = await start()

    assert_problem(await proxy.client.post("/v1/models/nobody/predict", json=BODY), 404, "E201")
    assert_problem(await proxy.client.get("/v1/models/nobody"), 404, "E201")


async def test_a_model_name_may_hold_an_encoded_slash(start):
    proxy = await start()

    response = await proxy.client.post("/v1/models/a%2Fb/predict", json=BODY)

    assert response.status_code == 200
    assert (response.json()["model"], response.headers["x-model-version"]) == ("a/b", "7/x")


async def test_unknown_paths_and_methods_are_problems_too(start):
    proxy = await start()

    assert_problem(await proxy.client.get("/nowhere"), 404, "E404")
    assert_problem(await proxy.client.post("/v1/models/visits/nowhere", json=BODY), 404, "E404")
    refused = await proxy.client.get(PATH)
    assert_problem(refused, 405, "E405")
    assert refused.headers["allow"] == "POST"


async def test_forcing_a_version_needs_the_scope(start):
    proxy = await start()
    path = "/v1/models/visits/versions/2/predict"

    assert_problem(await proxy.client.post(path, json=BODY), 403, "E403")
    assert_problem(await proxy.client.post(path, json=BODY, headers={"authorization": "Bearer ops.wrong"}), 401, "E401")
    forced = await proxy.client.post(path, json=BODY, headers={"authorization": "Bearer ops.secret"})

    assert forced.json()["version"] == "2"
    key = {"authorization": "Bearer ops.secret"}
    assert_problem(await proxy.client.post("/v1/models/visits/versions/9/predict", json=BODY, headers=key), 404, "E202")


async def test_a_backend_that_fails_is_named_and_retryable(start):
    proxy = await start()
    backend = proxy.backends["1"]

    backend.error = BackendUnavailable("no replica of visits 1 answers")
    down = await proxy.client.post(PATH, json=BODY)
    backend.error = BadAnswer("INTERNAL")
    broken = await proxy.client.post(PATH, json=BODY)
    backend.error, backend.delay_seconds = None, 5
    late = await proxy.client.post(PATH, json=BODY, headers={"x-request-timeout-ms": "30"})

    assert_problem(down, 503, "E503")
    assert down.headers["retry-after"] == "1"
    assert down.headers["x-model-version"] == "1"
    assert_problem(broken, 502, "E502")
    assert "'upstream'" in assert_problem(late, 504, "E504")["detail"]
    assert [row.error_code for row in proxy.spool.rows] == ["E503", "E502", "E504"]


async def test_a_batch_keeps_its_good_members_each_with_its_own_version_and_error(start):
    proxy = await start()
    members = [BODY, {"inputs": {}}, {**BODY, "entity_id": "b"}, {"entity_id": "c", "inputs": {"age": 1}}]

    response = await proxy.client.post(PATH + ":batch", json={"entities": members})

    assert response.status_code == 200
    answer = response.json()
    first, second, third, fourth = answer["predictions"]
    assert answer["failed"] == 2
    assert (first["entity_id"], first["prediction"], first["version"]) == ("customer-42", {"score": 21.0}, "1")
    assert third["entity_id"] == "b"
    assert second["error"]["code"] == "E102"
    assert (fourth["error"]["code"], fourth["version"]) == ("E101", "1")
    for too_many in ([], [BODY] * 257):
        refused = await proxy.client.post(PATH + ":batch", json={"entities": too_many})
        assert_problem(refused, 422, "E105")
    assert_problem(await proxy.client.post("/v1/models/nobody/predict:batch", json={"entities": [BODY]}), 404, "E201")


async def test_the_example_of_a_model_works_as_it_is(start):
    proxy = await start()

    detail = (await proxy.client.get("/v1/models/visits")).json()
    example = detail["example"]
    response = await proxy.client.post(example["path"], json=example["body"])

    assert response.status_code == 200
    assert [version["version"] for version in detail["versions"]] == ["1", "2", "3"]


async def test_the_list_pages(start):
    proxy = await start()

    first = (await proxy.client.get("/v1/models?limit=1")).json()
    second = (await proxy.client.get(f"/v1/models?limit=1&cursor={first['next_cursor']}")).json()

    assert [m["model"] for m in first["models"] + second["models"]] == ["a/b", "visits"]
    assert second["next_cursor"] is None
    assert_problem(await proxy.client.get("/v1/models?limit=0"), 400, "E106")


async def test_an_assignment_explains_itself(start):
    proxy = await start()

    answer = (await proxy.client.get("/v1/models/visits/assignment?entity_id=customer-42")).json()

    assert answer["hashed"] == "md5(visits:customer-42) mod 100"
    assert (answer["version"], answer["role"], answer["reason"]) == ("1", "champion", "bucket")
    assert answer["joins_challenger_from_weight"] == answer["bucket"] + 1
    assert_problem(await proxy.client.get("/v1/models/visits/assignment"), 422, "E102")


async def test_where_keys_are_asked_for_nothing_answers_without_one(start):
    proxy = await start(auth=True)
    key = {"authorization": "Bearer ops.secret"}

    assert_problem(await proxy.client.post(PATH, json=BODY), 401, "E401")
    for path in ("/v1/models", "/v1/models/visits", "/problems/E101", "/nowhere", "/v1/models/visits/assignment"):
        refused = await proxy.client.get(path)
        assert_problem(refused, 401, "E401")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert (await proxy.client.get("/livez")).status_code == 200
    assert (await proxy.client.get("/readyz")).status_code == 200
    assert (await proxy.client.post(PATH, json=BODY, headers=key)).status_code == 200
    assert (await proxy.client.get("/v1/models", headers=key)).status_code == 200


async def test_health_tells_liveness_from_readiness(start):
    proxy = await start()

    assert (await proxy.client.get("/livez")).json()["status"] == "alive"
    assert (await proxy.client.get("/readyz")).json()["status"] == "ready"


async def test_a_proxy_none_of_whose_champions_answers_is_not_ready_but_alive(start):
    proxy = await start()
    proxy.backends["1"].is_ready = proxy.backends["7/x"].is_ready = False

    unready = await proxy.client.get("/readyz")

    assert (unready.status_code, unready.json()["status"]) == (503, "unreachable")
    assert (await proxy.client.get("/livez")).status_code == 200


async def test_versions_can_be_kept_from_callers_outside(start):
    proxy = await start(version_headers=False)

    response = await proxy.client.post(PATH, json=BODY)

    assert response.headers["x-prediction-id"]
    assert "x-model-version" not in response.headers
    assert "x-model-role" not in response.headers


async def test_openapi_has_an_operation_id_a_summary_and_problems_for_every_route(start):
    proxy = await start()

    document = (await proxy.client.get("/openapi.json")).json()

    operations = [op for path in document["paths"].values() for op in path.values()]
    assert len({op["operationId"] for op in operations}) == len(operations) >= 8
    assert all(op["summary"] for op in operations)
    assert "/v1/models/{model}/predict" in document["paths"]
    assert "422" in document["paths"]["/v1/models/{model}/predict"]["post"]["responses"]


async def test_a_problem_type_can_be_looked_up(start):
    proxy = await start()
    problem = assert_problem(await proxy.client.post(PATH, content=b"x"), 400, "E100")

    assert (await proxy.client.get(problem["type"])).json()["status"] == 400


async def test_a_trace_is_answered_with_a_span_of_the_same_trace(start):
    proxy = await start()
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}

    response = await proxy.client.post(PATH, json=BODY, headers=trace)

    assert re.fullmatch(rf"00-{'a' * 32}-[0-9a-f]{{16}}-00", response.headers["traceresponse"])


async def test_many_callers_at_once_each_get_their_own_answer(start):
    proxy = await start()

    async def ask(n: int) -> float:
        body = {"entity_id": f"customer-{n}", "inputs": {"age": n % 130, "income": n}}
        return float((await proxy.client.post(PATH, json=body)).json()["prediction"]["score"])

    scores = await asyncio.gather(*(ask(n) for n in range(200)))

    assert scores == [(n % 130 + n) / 2 for n in range(200)]
