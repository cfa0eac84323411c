"""The predict route and FastAPI's own routes call the same handler: to any request they answer the same."""

import asyncio
import re
from typing import Any
from urllib.parse import quote, unquote

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.entrypoints.proxy.api.predict_route import (
    App,
    Receive,
    Scope,
    Send,
    canonical_path,
    http_call,
    read_body,
)
from understudy.entrypoints.proxy.api.request_id import RequestIdMiddleware
from understudy.entrypoints.proxy.overload.body_budget import BODY_BUDGET, BodyBudget
from understudy.errors import BodyTooLarge, MalformedBody, Overloaded
from understudy.settings import Settings

RANDOM_IDS = re.compile(rb'"prediction_id":"[^"]+"')
TAKES_ITS_TIME = re.compile(rb"dur=[0-9.]+")
OWN_SPAN = re.compile(rb"-[0-9a-f]{16}-00$")
KEYS = [
    b"Bearer ops.secret",
    b"Bearer visitor.secret",
    b"bearer  ops.secret ",
    b"Bearer ops.wrong",
    b"Bearer nobody.x",
    b"Basic b3Bz",
    b"",
]

models = st.sampled_from(
    ["visits", "a%2Fb", "a%2fb", "a%252Fb", "%76isits", "nobody", "visits%20", "%FF", "v+i@s(i)ts"]
)
actions = st.sampled_from(["predict", "predict", "predict:batch", "predict:batch", "versions/2/predict"])
numbers = st.integers() | st.floats() | st.just(2**64)
features = st.fixed_dictionaries(
    {}, optional={"age": numbers | st.text(max_size=3), "income": numbers | st.none(), "x": st.just([[1]])}
)
good_requests = st.fixed_dictionaries(
    {
        "entity_id": st.sampled_from(["customer-42", "é", "x" * 255]),
        "inputs": st.fixed_dictionaries({"age": st.integers(0, 130), "income": st.floats(-1e6, 1e6)}),
    }
)
requests = good_requests | st.fixed_dictionaries(
    {"entity_id": st.text(max_size=3) | st.none() | st.just("x" * 256), "inputs": features},
    optional={"category": st.text(max_size=3) | st.none() | st.just(7), "extra": st.none()},
)
documents = (
    good_requests
    | requests
    | st.fixed_dictionaries({"entities": st.lists(requests | st.none(), max_size=4)}, optional={"more": st.none()})
    | st.recursive(st.none() | numbers | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
)


def written(document: Any) -> bytes:
    """Return it as JSON where there is such, with NaN and long integers as Python's own writer has them."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return repr(document).encode(errors="replace")


batches = st.fixed_dictionaries({"entities": st.lists(good_requests | requests, min_size=1, max_size=4)})
bodies = (
    good_requests.map(written)
    | batches.map(written)
    | documents.map(written)
    | st.binary(max_size=40)
    | st.sampled_from([b"", b"{", b"[" * 5_000, b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b" " * 1_100_000])
)


@st.composite
def cut_bodies(draw: st.DrawFn) -> list[bytes]:
    """Return a body in the pieces that it arrives in; some of them are empty."""
    body = draw(bodies)
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]


a_millisecond_count = st.sampled_from([b"5000", b"3600000", b"3600001", b"0", b"-1", b"x", b"", b"1e3"])
odd_headers = st.one_of(
    st.tuples(st.just(b"x-request-timeout-ms"), a_millisecond_count),
    st.tuples(st.just(b"x-envoy-expected-rq-timeout-ms"), a_millisecond_count),
    st.tuples(st.just(b"grpc-timeout"), st.sampled_from([b"5S", b"0m", b"99999999H", b"1", b"S", b"\xff"])),
    st.tuples(st.just(b"authorization"), st.sampled_from(KEYS) | st.binary(max_size=20)),
    st.tuples(st.just(b"x-request-id"), st.sampled_from([b"mine", b"x" * 129, b"a b", b""]) | st.binary(max_size=9)),
    st.tuples(st.just(b"traceparent"), st.sampled_from([b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"junk"])),
    st.tuples(st.just(b"content-encoding"), st.sampled_from([b"identity", b"Identity", b"gzip", b""])),
    st.tuples(st.just(b"content-type"), st.sampled_from([b"text/plain", b"application/json", b"\xff"])),
    st.tuples(st.binary(min_size=1, max_size=8), st.binary(max_size=8)),
)


def without_predict_route(app: Any) -> App:
    """Return the application with FastAPI answering everything, behind the same authorization."""
    route = app._app  # noqa: SLF001 - the layers of the application

    async def straight_on(scope: Scope, receive: Receive, send: Send) -> None:
        await route._app({**scope, "path": canonical_path(scope["raw_path"])}, receive, send)  # noqa: SLF001

    return RequestIdMiddleware(straight_on, app._handler, app._new_id)  # noqa: SLF001


def without_chance(answer: Any, sent: list[tuple[bytes, bytes]]) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return an answer without what is random, timed, or of the cache that the first of two askers filled."""
    headers = {
        name: value for name, value in answer.headers.items() if name not in (b"x-prediction-id", b"cache-status")
    }
    if b"server-timing" in headers:
        headers[b"server-timing"] = TAKES_ITS_TIME.sub(b"", headers[b"server-timing"]).replace(b"=hit", b"=miss")
    if b"traceresponse" in headers:
        headers[b"traceresponse"] = OWN_SPAN.sub(b"", headers[b"traceresponse"])
    if headers[b"x-request-id"] not in [value for name, value in sent if name == b"x-request-id"]:
        assert re.fullmatch(rb"[0-9a-f]{32}", headers.pop(b"x-request-id"))
    return answer.status, headers, RANDOM_IDS.sub(b"", answer.body)


@pytest.fixture
async def proxy(start: Any) -> Any:
    """The application that all examples ask."""
    return await start(auth=True)


@pytest.mark.deep
@settings(
    max_examples=600,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    path=st.builds("/v1/models/{}/{}".format, models, actions),
    chunks=cut_bodies(),
    headers=st.just([]) | st.lists(odd_headers, max_size=4),
    key=st.just(KEYS[0]) | st.sampled_from(KEYS),
)
async def test_the_lane_and_fastapi_give_the_same_answer(proxy, path, chunks, headers, key):
    sent = [(b"authorization", key), *headers]

    through_lane = await proxy.ask(path, *chunks, headers=sent)
    through_api = await proxy.ask(path, *chunks, headers=sent, through=without_predict_route(proxy.app))

    assert without_chance(through_lane, sent) == without_chance(through_api, sent)
    assert through_lane.status != 500


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4))
def test_names_survive_their_way_through_a_path_whoever_encodes_them(names):
    sparsely = "/".join(quote(name, safe="@:+&$,;=!*'()~") for name in names)
    wholly = "/".join("".join(f"%{byte:02x}" for byte in name.encode()) for name in names)

    for raw_path in (sparsely, wholly):
        found = canonical_path(raw_path.encode())
        assert [unquote(part) for part in found.split("/")] == names
        assert canonical_path(found.encode()) == found
    assert canonical_path(sparsely.encode()) == canonical_path(wholly.encode())


async def body_of(*messages: dict[str, Any], limit_bytes: int = 10) -> bytes:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return await read_body(receive, limit_bytes, 5)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=5))
async def test_a_body_is_its_pieces_in_order_or_too_large(pieces):
    last = len(pieces) - 1
    messages = [
        {"type": "http.request", "body": piece, "more_body": index < last} for index, piece in enumerate(pieces)
    ]
    whole = b"".join(pieces)

    if len(whole) <= 10:
        assert await body_of(*messages) == whole
    else:
        with pytest.raises(BodyTooLarge):
            await body_of(*messages)


async def test_a_body_that_is_announced_as_too_long_is_refused_before_any_of_it_is_awaited():
    async def receive() -> dict[str, Any]:
        raise AssertionError("nothing of the body may be waited for")

    for length in (b"11", b"9" * 20, b"0" * 18 + b"11", b"11 "):
        with pytest.raises(BodyTooLarge):
            await read_body(receive, 10, 5, {"headers": [(b"host", b"x"), (b"content-length", length)]})


async def test_what_was_made_of_a_body_is_counted_until_its_request_is_over():
    budget = BodyBudget(100_000, 100_000, lambda _address, _limit: None)
    scope = {"path": "/", "headers": [], "state": {BODY_BUDGET: budget}}

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body is not asked for")

    async def request() -> int:
        call = http_call(scope, receive, Settings())
        call.hold(80_000)
        with pytest.raises(Overloaded):
            call.hold(40_000)
        return budget.held_bytes

    assert await asyncio.create_task(request()) == 80_000
    await asyncio.sleep(0)  # then what is due when a task ends is done
    assert budget.held_bytes == 0


async def test_a_caller_who_goes_away_in_the_middle_leaves_no_half_a_body():
    with pytest.raises(MalformedBody, match="after 2 bytes"):
        await body_of({"type": "http.request", "body": b"{}", "more_body": True}, {"type": "http.disconnect"})
