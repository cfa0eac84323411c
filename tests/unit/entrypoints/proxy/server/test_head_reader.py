"""The head reader beside the HTTP parser: what it takes, the parser reads in the same way."""

import random
from typing import Any

import pytest
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from understudy.core.upstream.trace_context import read_trace_context
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.headers import DIALECT_HEADERS, RequestOptions, read_headers
from understudy.entrypoints.proxy.server.head_reader import MAX_HEAD, WholeRequest, read_whole
from understudy.entrypoints.proxy.server.head_rules import LOCAL_NAMES, HeadRules, absolute_target_problem
from understudy.errors import UnderstudyError

BODY = b'{"entity_id":"a"}'
RULES = HeadRules(LOCAL_NAMES, refuses_pages=True)

CURL = (b"Host: 127.0.0.1:8080", b"User-Agent: curl/8.14.1", b"Accept: */*", b"Content-Type: application/json")
ENVOY = (
    b"host: models.internal",
    b"content-type: application/json",
    b"x-forwarded-proto: http",
    b"x-request-id: 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    b"tracestate: vendor=abc",
    b"x-envoy-expected-rq-timeout-ms: 500",
    b"authorization: Bearer 0123456789",
)
NODE = (b"host:localhost", b"accept-language:*", b"cookie:a=b", b"cookie:c=d", b"content-type:application/json")


def a_call(*lines: bytes, body: bytes = BODY, length: bytes | None = None, start: bytes = b"") -> bytes:
    start = start or b"POST /v1/models/visits/predict HTTP/1.1"
    lines = (*lines, b"Content-Length: %b" % (length or b"%d" % len(body)))
    return b"\r\n".join((start, *lines, b"", body))


TRITON = (b"Host: x:8080", b"content-type: application/json", b"Inference-Header-Content-Length: 17", b"x-entity-id: u")
TARGETS = (b"/v1/models/visits/predict", b"/v1/models/visits:predict", b"/v2/models/visits/infer")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lines", [CURL, ENVOY, NODE, TRITON])
def test_what_callers_send_is_read_without_the_parser(lines, target):
    call = a_call(*lines, start=b"POST %b HTTP/1.1" % target)
    found = read_whole(call)

    assert found is not None
    assert (found.target, found.body) == (target, BODY)
    assert_is_read_alike(call, found)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        a_call(*CURL)[:-1],
        a_call(*CURL) + b"G",
        b"\r\n" + a_call(*CURL),
        a_call(*CURL, length=b"+17"),
        a_call(*CURL, length=b"0x11"),
        a_call(*CURL, length=b"17 "),
        a_call(*CURL, length=b"17, 17"),
        a_call(*CURL, b"content-length: 17"),
        a_call(*CURL, b"Transfer-Encoding: chunked"),
        a_call(*CURL, b"transfer-encoding : chunked"),
        a_call(*CURL, b"Connection: close"),
        a_call(*CURL, b"Connection: keep-alive"),
        a_call(*CURL, b"Proxy-Connection: close"),
        a_call(*CURL, b"Expect: 100-continue"),
        a_call(*CURL, b"Upgrade: h2c"),
        a_call(*CURL, b"Host: other"),
        a_call(*CURL, b"Authorization: a", b"authorization: b"),
        a_call(*CURL, b"x: a\n b"),
        a_call(*CURL, b"x: a", b" folded"),
        a_call(*CURL, b"x: \x00"),
        a_call(*CURL, b"x: \xff"),
        a_call(*CURL, b"x : 1"),
        a_call(*CURL, b": 1"),
        a_call(*CURL, b"x"),
        a_call(*CURL, b"x: " + b"c" * MAX_HEAD),
        a_call(*CURL).replace(b"\r\n", b"\n"),
        a_call(*CURL, start=b"POST /v1/models/visits/predict HTTP/1.0"),
        a_call(*CURL, start=b"POST /v1/models/visits/predict?a=b HTTP/1.1"),
        a_call(*CURL, start=b"POST http://x/v1/models/visits/predict HTTP/1.1"),
        a_call(*CURL, start=b"POST /v1/models/vis%69ts/predict HTTP/1.1"),
        a_call(*CURL, start=b"POST /v1/models/visits:classify HTTP/1.1"),
        a_call(*CURL, start=b"POST /v1/models/visits/infer HTTP/1.1"),
        a_call(*CURL, start=b"POST /v2/models/visits/predict HTTP/1.1"),
        a_call(*CURL, start=b"POST /v2/models/visits/versions/1/infer HTTP/1.1"),
        a_call(*CURL, start=b"POST /V2/models/visits/infer HTTP/1.1"),
        a_call(*TRITON, b"X-Entity-Id: other", start=b"POST /v2/models/visits/infer HTTP/1.1"),
        a_call(*CURL, start=b"POST  /v1/models/visits/predict HTTP/1.1"),
        a_call(*CURL, start=b"PUT /v1/models/visits/predict HTTP/1.1"),
        a_call(*CURL, start=b"post /v1/models/visits/predict HTTP/1.1"),
        b"POST /v1/models/visits/predict HTTP/1.1\r\n\r\n",
        b"POST /v1/models/visits/predict HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_anything_unusual_is_left_to_the_parser(data):
    assert read_whole(data) is None


@pytest.mark.deep
def test_the_reader_and_the_parser_read_twenty_thousand_heads_alike():
    assert_all_are_read_alike(20_000, seed=1)


@pytest.mark.slow
def test_the_reader_and_the_parser_read_a_million_heads_alike():
    assert_all_are_read_alike(1_000_000, seed=2)


def assert_all_are_read_alike(count: int, seed: int) -> None:
    chance = random.Random(seed)
    taken = 0
    for _ in range(count):
        data = made_up(chance)
        found = read_whole(data)
        if found is not None:
            taken += 1
            assert_is_read_alike(data, found)
    assert taken > count / 10  # else nothing was compared


def assert_is_read_alike(data: bytes, found: WholeRequest) -> None:
    """Hold what the reader found beside what the parser does, and what either becomes in the proxy."""
    parsed = Parsed()
    parsed.feed(data)
    assert (parsed.requests, parsed.problem) == (1, None), data
    assert parsed.line == (b"POST", found.target, "1.1", True, False), data
    assert parsed.body == found.body, data
    headers = parsed.headers
    assert absolute_target_problem(found.target, headers) is None
    if b"host" in found.fields:  # else the parser's way refuses it
        problem = RULES.problem(b"POST", found.target, "1.1", headers)
        assert type(problem) is type(RULES.problem_of_plain(b"POST", found.fields)), data
    fields = dict(headers)
    assert options_of(fields) == options_of(found.fields), data
    assert identify(fields, made_id) == identify(found.fields, made_id), data
    assert read_trace_context(headers) == read_trace_context(found.fields.items()), data
    if not found.target.endswith(b"/predict"):
        ours = {name: value for name, value in found.fields.items() if name in DIALECT_HEADERS}
        assert ours == {name: value for name, value in fields.items() if name in DIALECT_HEADERS}, data


def made_id() -> str:
    return "0123456789abcdef" * 2


def options_of(fields: Any) -> RequestOptions | str:
    try:
        return read_headers(fields)
    except UnderstudyError as problem:
        return str(problem)


class Parsed:
    """What the HTTP parser makes of the bytes of one read."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = self._url = b""
        self.requests = 0
        self.line: tuple[bytes, bytes, str, bool, bool] | None = None
        self.problem: Exception | None = None
        self._parser = HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            self.problem = problem

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        version, keeps = parser.get_http_version(), parser.should_keep_alive()
        self.line = (parser.get_method(), self._url, version, keeps, parser.should_upgrade())

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.requests += 1


LINES = (
    *CURL,
    *ENVOY,
    *NODE,
    b"Host: evil.example",
    b"host: [::1]:80",
    b"content-type: text/plain",
    b"Content-Type:",
    b"content-encoding: gzip",
    b"Content-Encoding: identity",
    b"grpc-timeout: 100m",
    b"grpc-timeout: never",
    b"X-Request-Timeout-Ms: 250",
    b"x-request-id:   padded",
    b"x-request-id: a b",
    b"X-Request-Id: trailing  ",
    b"TraceParent:\t00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\t",
    b"tracestate: a=b,c=d",
    b"origin: http://evil.example",
    b"sec-fetch-site: cross-site",
    b"content-length: 17",
    b"Content-Length: 00017",
    b"content-length: 16",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding: identity",
    b"connection: keep-alive, close",
    b"proxy-connection: close",
    b"keep-alive: timeout=5",
    b"upgrade: websocket",
    b"expect: 100-continue",
    b"x_under-score.1~: ok",
    b"X-Entity-Id: customer-42",
    b"x-entity-id:  padded ",
    b"x-category:vip",
    b"accept-encoding: gzip, deflate",
    b"Inference-Header-Content-Length: 17",
    b"x: " + bytes(range(32, 127)),
)
PIECES = (b"\r", b"\n", b"\r\n", b"\r\n\r\n", b":", b" ", b"\t", b"\x00", b"\x7f", b"\xff", b"Host", b"0", b",")


def made_up(chance: random.Random) -> bytes:
    """Make a request of known lines, and change none to three of its bytes."""
    lines = chance.sample(LINES, chance.randrange(8))
    if chance.random() < 0.7:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice((b"Host: localhost", b"host:127.0.0.1:80")))
    if chance.random() < 0.7:
        lines.append(b"content-length: %d" % len(BODY))
    data = b"\r\n".join((b"POST %b HTTP/1.1" % chance.choice(TARGETS), *lines, b"", BODY))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        at, until = chance.randrange(len(data)), chance.choice((0, 0, 1, 2))
        data = (
            data[:at]
            + chance.choice((b"", chance.choice(PIECES), bytes((chance.randrange(256),))))
            + data[at + until :]
        )
    return data
