import asyncio
import gc
import re
import threading
from contextlib import suppress
from hashlib import sha256
from typing import Any

import orjson
import pytest
from builders import KeptRows
from structlog.testing import capture_logs

from understudy.core.prediction_log.row import PredictionRow
from understudy.errors import BackendUnavailable, BadAnswer, UnknownModel

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


UNKNOWN_MODEL = [
    ("POST", "/v1/models/vists/predict", BODY),
    ("POST", "/v1/models/vists/predict:batch", {"entities": [BODY]}),
    ("GET", "/v1/models/vists", None),
    ("GET", "/v1/models/vists/assignment?entity_id=x", None),
    ("POST", "/v1/models/vists:predict", {"instances": [[1, 2]]}),
    ("POST", "/v2/models/vists/infer", {}),
    ("GET", "/v2/models/vists/ready", None),
    ("POST", "/v1/models/vists/invocations", {}),
]
ALL_READER = {"id": "reader", "sha256": sha256(b"secret").hexdigest(), "scopes": ["predict", "read"]}
READER_OF_ONE = {"id": "one", "sha256": sha256(b"secret").hexdigest(), "scopes": ["predict", "read:a/b", "read:vists"]}
CALLER_ALONE = {"id": "caller", "sha256": sha256(b"secret").hexdigest(), "scopes": ["predict", "read:vists"]}


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN_MODEL)
async def test_an_unknown_models_404_names_the_nearest_and_the_list_of_what_its_caller_may_read(
    start, method, path, body
):
    proxy = await start(auth=True, keys=[ALL_READER, READER_OF_ONE, CALLER_ALONE])

    async def told(key: str) -> dict[str, Any]:
        answer = await proxy.client.request(method, path, json=body, headers={"authorization": f"Bearer {key}.secret"})
        assert (answer.status_code, answer.json()["code"]) == (404, "E201")
        found: dict[str, Any] = answer.json()
        return found

    every, one, none = [await told(key) for key in ("reader", "one", "caller")]

    assert every["detail"] == "no model 'vists' is served; did you mean 'visits'?"
    assert "'visits'" in every["next"]
    assert "'a/b'" in every["next"]
    assert "There is 'a/b'" in one["next"]
    assert "visits" not in str(one | {"instance": "", "detail": one["detail"].replace("vists", "")})
    assert "a/b" not in str(none)
    assert none["next"] == UnknownModel.hint


async def test_a_name_may_hold_an_encoded_slash_on_every_path(start):
    proxy = await start()
    ask, key = proxy.client, {"authorization": "Bearer ops.secret"}

    predicted = await ask.post("/v1/models/a%2Fb/predict", json=BODY)
    batch = await ask.post("/v1/models/a%2fb/predict:batch", json={"entities": [BODY]})
    forced = await ask.post("/v1/models/a%2Fb/versions/7%2Fx/predict", json=BODY, headers=key)
    detail = await ask.get("/v1/models/a%2Fb")
    assigned = await ask.get("/v1/models/a%2Fb/assignment?entity_id=x")

    assert (predicted.json()["model"], predicted.headers["x-model-version"]) == ("a/b", "7/x")
    assert batch.json()["predictions"][0]["version"] == forced.json()["version"] == "7/x"
    assert detail.json()["model"] == assigned.json()["model"] == "a/b"
    example = detail.json()["example"]
    assert (await ask.post(example["path"], json=example["body"])).json()["model"] == "a/b"


@pytest.mark.parametrize("path", ["/v1/models/%76isits/predict", "/v1/models/visits/predict%3Abatch", "/v1/%6dodels"])
async def test_encoding_what_needs_none_changes_nothing(start, path):
    proxy = await start()

    answer = await proxy.ask(path, b"{}", method="GET" if path.endswith("odels") else "POST")

    assert answer.status in (200, 422)


async def test_a_name_is_decoded_once(start):
    proxy = await start()

    assert_problem(await proxy.client.post("/v1/models/a%252Fb/predict", json=BODY), 404, "E201")
    assert_problem(await proxy.client.get("/v1/models/a%252Fb"), 404, "E201")
    assert_problem(await proxy.client.get("/v1/models/%FF%00"), 404, "E201")


async def test_unknown_paths_are_problems_too(start):
    proxy = await start()

    for path in ("/nowhere", "/v1/models/", "/favicon.ico", "/docs/oauth2-redirect", "/v1/models/visits/predict/x"):
        assert_problem(await proxy.client.get(path), 404, "E404")
    assert_problem(await proxy.client.post("/v1/models/visits/nowhere", json=BODY), 404, "E404")


async def test_a_slash_too_many_sends_no_caller_elsewhere(start):
    proxy = await start()

    for method, path in (("POST", PATH + "/"), ("GET", "/v1/models/"), ("GET", "/livez/")):
        answer = await proxy.client.request(method, path, headers={"host": "evil.example"})

        assert_problem(answer, 404, "E404")
        assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (PATH, "POST"),
        ("/v1/models", "GET"),
        ("/v1/models/a%2Fb", "GET"),
        ("/livez", "GET, HEAD"),
        ("/docs", "GET, HEAD"),
    ],
)
async def test_a_method_that_a_path_does_not_answer_is_a_problem_that_names_those_it_does(start, path, allowed):
    proxy = await start()

    for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "BREW"):
        answer = await proxy.client.request(method, path)

        if method in allowed:
            assert answer.status_code == 200, method
            continue
        assert answer.headers["allow"] == allowed, method
        if method == "HEAD":  # which has no body
            assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")
        else:
            assert_problem(answer, 405, "E405")


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


GUARDED = [
    ("POST", PATH),
    ("POST", PATH + ":batch"),
    ("POST", "/v1/models/visits/versions/2/predict"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/visits"),
    ("GET", "/v1/models/visits/assignment"),
    ("GET", "/problems/E101"),
    ("GET", "/nowhere"),
    ("POST", "/nowhere"),
    ("POST", "/livez"),
    ("DELETE", "/v1/models/visits"),
]


async def test_where_keys_are_asked_for_nothing_answers_without_one(start):
    proxy = await start(auth=True)
    key = {"authorization": "Bearer ops.secret"}

    for method, path in GUARDED:
        refused = await proxy.client.request(method, path, json=BODY)
        assert_problem(refused, 401, "E401")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert (await proxy.client.get("/livez")).status_code == 200
    assert (await proxy.client.get("/readyz")).status_code == 200
    assert (await proxy.client.post(PATH, json=BODY, headers=key)).status_code == 200
    assert (await proxy.client.get("/v1/models", headers=key)).status_code == 200


async def test_a_key_is_not_called_unknown_while_no_policy_is_loaded(start):
    proxy = await start(auth=True, registry_answers=False)
    key = {"authorization": "Bearer ops.secret"}

    for method, path in GUARDED:
        refused = await proxy.client.request(method, path, json=BODY, headers=key)
        assert_problem(refused, 503, "E506")
        assert refused.headers["retry-after"] == "1"
        assert_problem(await proxy.client.request(method, path, json=BODY), 401, "E401")
    assert (await proxy.client.get("/livez")).status_code == 200


async def test_no_body_is_read_before_its_sender_was_let_in(start):
    proxy = await start(auth=True, receive_seconds=30)

    for path in (PATH, PATH + ":batch", "/v1/models/visits/versions/2/predict"):
        async with asyncio.timeout(5):
            assert (await proxy.ask(path, ends=False)).status == 401


@pytest.mark.parametrize("path", [PATH, PATH + ":batch", "/v1/models/visits/versions/2/predict"])
@pytest.mark.parametrize("chunks", [(), (b'{"entity_id":',)])
async def test_a_body_that_never_ends_is_given_up_and_its_connection_with_it(start, path, chunks):
    proxy = await start(receive_seconds=0.05)
    headers = [(b"authorization", b"Bearer ops.secret"), (b"x-request-id", b"mine")]

    answer = await proxy.ask(path, *chunks, headers=headers, ends=False)

    assert (answer.status, orjson.loads(answer.body)["code"]) == (408, "E107")
    assert answer.headers[b"connection"] == b"close"
    assert answer.headers[b"x-request-id"] == b"mine"
    assert proxy.spool.rows == []


@pytest.mark.deep
async def test_the_caller_s_deadline_counts_from_when_the_request_arrived(start):
    proxy = await start()
    proxy.backends["1"].delay_seconds = 0.4
    headers = [(b"x-request-timeout-ms", b"800")]

    async def ask(pause_seconds: float) -> str:
        body = orjson.dumps({"entity_id": "a", "inputs": {"age": 1, "income": pause_seconds}})
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(pause_seconds)
            return next(parts)

        async def send(message: Any) -> None:
            sent.append(message)

        path = {"path": PATH, "raw_path": PATH.encode()}
        await proxy.app({"type": "http", "method": "POST", "headers": headers, **path}, receive, send)
        return str(orjson.loads(sent[1]["body"]).get("detail", "answered"))

    at_once, slowly, too_late = await asyncio.gather(ask(0), ask(0.5), ask(0.85))

    assert at_once == "answered"
    assert slowly.endswith("'upstream'")
    assert too_late == "800 ms were allowed; time ran out in stage 'body'"
    assert [row.error_code for row in proxy.spool.rows] == [None, "E504"]


@pytest.mark.parametrize("path", [PATH, PATH + ":batch"])
async def test_a_deadline_of_no_time_is_refused_and_nothing_held_against_the_version(start, path):
    proxy = await start()

    refused = await proxy.client.post(path, json=BODY, headers={"grpc-timeout": "0m"})

    assert_problem(refused, 400, "E104")
    assert proxy.spool.rows == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", PATH, b"{}", 422),
        ("POST", PATH, b" " * 1_048_577, 413),
        ("POST", PATH + ":batch", b" " * 1_048_577, 413),
        ("POST", "/v1/models/nobody/predict:batch", b'{"entities":[{"entity_id":"a","inputs":{}}]}', 404),
        ("GET", "/v1/models?limit=0", b"", 400),
        ("GET", "/v1/models", b"", 200),
        ("GET", "/v1/models/nobody", b"", 404),
        ("GET", "/nowhere", b"", 404),
        ("PUT", "/livez", b"", 405),
        ("GET", "/livez", b"", 200),
    ],
)
async def test_every_answer_has_the_caller_s_request_id_and_trace(start, method, path, body, status):
    proxy = await start()
    headers = {"x-request-id": "mine", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}

    answer = await proxy.client.request(method, path, content=body, headers=headers)

    assert answer.status_code == status
    assert answer.headers.get_list("x-request-id") == ["mine"]
    assert answer.headers["traceresponse"].startswith(f"00-{'a' * 32}-")
    made = (await proxy.client.request(method, path, content=body)).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{32}", made)


async def test_an_answer_to_unusable_headers_has_the_caller_s_request_id(start):
    proxy = await start()

    for method, path in (("POST", PATH), ("GET", "/v1/models")):
        headers = {"x-request-id": "mine", "x-request-timeout-ms": "soon"}
        refused = await proxy.client.request(method, path, headers=headers)

        assert_problem(refused, 400, "E104")
        assert refused.headers["x-request-id"] == "mine"


class BrokenSpool(KeptRows):
    """A spool with a defect."""

    def append(self, row: PredictionRow) -> bool:
        msg = f"no place for {row.entity_id}"
        raise LookupError(msg)


@pytest.mark.parametrize("asked", [PATH, "/v1/models/visits/versions/1/predict"])
async def test_a_defect_is_told_without_internals_and_logged_under_the_id_that_the_caller_got(start, asked):
    proxy = await start(spool=BrokenSpool())
    key = {"authorization": "Bearer ops.secret"}

    with capture_logs() as logged:
        given = await proxy.client.post(asked, json=BODY, headers={"x-request-id": "mine", **key})
        made = await proxy.client.post(asked, json=BODY, headers=key)

    for answer in (given, made):
        assert "place" not in assert_problem(answer, 500, "E500")["detail"]
    assert given.headers["x-request-id"] == "mine"
    assert [line["request_id"] for line in logged] == ["mine", made.headers["x-request-id"]]
    assert all(line["exc_info"] and line["path"] == asked for line in logged)


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

    scores = await asyncio.gather(*(ask(n) for n in range(60)))

    assert scores == [(n % 130 + n) / 2 for n in range(60)]


async def test_what_a_server_wants_done_is_done_once_when_the_parts_are_open(start):
    done: list[int] = []
    thresholds = gc.get_threshold()

    proxy = await start(on_open=lambda: done.append(len(asyncio.all_tasks())))
    await proxy.client.get("/livez")

    assert len(done) == 1
    assert done[0] > 1  # the policies are being followed already
    assert gc.get_threshold() == thresholds  # and the GC of this process is as it was


async def test_work_beside_the_event_loop_has_two_threads_however_much_there_is(start):
    await start()
    together = threading.Barrier(3)

    def wait_for_two_others() -> str:
        with suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.2)
        return threading.current_thread().name

    names = await asyncio.gather(*(asyncio.to_thread(wait_for_two_others) for _ in range(3)))

    assert together.broken
    assert len(set(names)) <= 2
