"""Pages of browsers, through the application with in-memory parts."""

import pytest
from pydantic import ValidationError

from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM
from understudy.entrypoints.proxy.server.response_writer import WRITE_WHOLE
from understudy.errors import HostUnknown
from understudy.settings import MAX_ORIGINS, Settings

PATHS = ("/v1/models/visits/predict", "/v1/models/visits:predict", "/v2/models/visits/infer", "/invocations")
SHOP = "https://shop.example"
PAGE = {"origin": SHOP}
ASKS = PAGE | {"access-control-request-method": "POST", "access-control-request-headers": "content-type, authorization"}
BODY = {"entity_id": "ada", "inputs": {"age": 40, "income": 2}}


@pytest.mark.parametrize("path", PATHS)
async def test_by_default_no_page_is_told_anything(start, path):
    proxy = await start(auth=True)

    asked = await proxy.client.options(path, headers=ASKS)
    called = await proxy.client.post(path, json=BODY, headers=PAGE)

    assert asked.status_code == called.status_code == 401
    assert not any(name.startswith("access-control") for one in (asked, called) for name in one.headers)


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_an_origin_that_is_named_may_ask_without_a_key_and_reads_refusals(start, path):
    proxy = await start(auth=True, cors_origins=f"http://localhost:5173, {SHOP}")

    asked = await proxy.client.options(path, headers=ASKS)
    called = await proxy.client.post(path, json=BODY, headers=PAGE)

    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == called.headers["access-control-allow-origin"] == SHOP
    assert asked.headers["access-control-allow-methods"] == "GET, POST"
    assert {"authorization", "x-entity-id"} <= set(asked.headers["access-control-allow-headers"].lower().split(", "))
    assert asked.headers["access-control-max-age"] == "600"
    assert "Origin" in called.headers["vary"]
    assert called.status_code == 401
    assert "x-request-id" in called.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in {*asked.headers, *called.headers}


async def test_its_page_reads_an_answer_and_the_receipt(start):
    proxy = await start(cors_origins="*")

    answer = await proxy.client.post(PATHS[0], json=BODY, headers=PAGE)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert {"x-prediction-id", "x-model-version"} <= set(answer.headers["access-control-expose-headers"].split(", "))


@pytest.mark.parametrize(
    "change",
    [
        {"origin": "https://other.example"},
        {"origin": "null"},
        {"origin": SHOP + ".other.example"},
        {"origin": "http://shop.example"},
        {"access-control-request-method": "DELETE"},
        {"access-control-request-headers": "cookie"},
    ],
)
async def test_another_origin_method_or_header_is_not_permitted(start, change):
    proxy = await start(auth=True, cors_origins=SHOP)

    asked = await proxy.client.options(PATHS[0], headers=ASKS | change)
    called = await proxy.client.post(PATHS[0], json=BODY, headers=PAGE | change)

    assert asked.status_code == 400
    if "origin" in change:
        assert not {"access-control-allow-origin"} & {*asked.headers, *called.headers}


async def test_a_request_of_no_page_is_answered_as_ever(start):
    proxy = await start(cors_origins=SHOP)

    answer = await proxy.client.post(PATHS[0], json=BODY)
    options = await proxy.client.options(PATHS[0])

    assert answer.status_code == 200
    assert options.status_code == 405
    assert not any(name.startswith("access-control") for one in (answer, options) for name in one.headers)


@pytest.mark.parametrize(("origins", "is_taken"), [(None, True), ("", True), (SHOP, False)])
async def test_the_fast_path_declines_pages_that_are_to_read_its_answers(start, origins, is_taken):
    proxy = await start(cors_origins=origins)
    written: list[tuple[int, bytes, bytes]] = []

    class Writer:
        def answer(self, *answer: object) -> None:
            written.append(answer)  # type: ignore[arg-type]  # of a writer

    offer = proxy.state[FAST_PATH].offer

    assert offer(PATHS[0].encode(), [(b"origin", SHOP.encode())], b"{}", Writer()) is is_taken
    assert offer(PATHS[0].encode(), [], b"{}", Writer()) is True


async def test_an_answer_is_not_written_past_what_adds_the_headers(start):
    proxy = await start(cors_origins=SHOP)
    scopes = []

    async def through(scope, receive, send):
        scope[WRITE_WHOLE] = lambda *_: pytest.fail("it was written past")
        scopes.append(scope)
        await proxy.app(scope, receive, send)

    answer = await proxy.ask(PATHS[0], b"{}", headers=[(b"origin", SHOP.encode())], through=through)

    assert answer.status == 422
    assert answer.headers[b"access-control-allow-origin"] == SHOP.encode()


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
async def test_no_page_reads_the_answer_to_a_name_that_is_not_the_proxys(start, method):
    proxy = await start(cors_origins="*")

    async def through(scope, receive, send):
        await proxy.app({**scope, HEAD_PROBLEM: HostUnknown()}, receive, send)

    headers = [(name.encode(), value.encode()) for name, value in ASKS.items()]
    answer = await proxy.ask(PATHS[0], method=method, headers=headers, through=through)

    assert answer.status == 421
    assert b"access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "text",
    [
        "shop.example", "https://shop.example/", "https://Shop.example", "https://*.shop.example", "null", "ftp://a",
        "https://a b", "https://a,*", "https://user@a", "https://a:999999",
        ",".join(f"https://a{number}" for number in range(MAX_ORIGINS + 1)),
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused_at_start(text):
    with pytest.raises(ValidationError, match="origin"):
        Settings(cors_origins=text)


def test_as_many_origins_as_there_may_be_are_taken():
    most = ",".join(f"https://a{number}.example:8443" for number in range(MAX_ORIGINS))

    for text in (most, "http://[::1]:5173, http://127.0.0.1", "*"):
        assert Settings(cors_origins=text).cors_origins == text
