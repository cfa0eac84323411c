"""Model servers over HTTP: what each protocol sends and reads, and what becomes of servers that misbehave."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.connect import connect, examine, replicas_of
from understudy.adapters.model_servers.http.pool import MAX_CONNECTIONS
from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.core.schema.tensors import Block, Datatype
from understudy.core.upstream.endpoint_rules import parse_rules
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, ServingError

from .http_server import HttpModelServer, reply, running_http
from .servers import Behaviour, eventually
from .test_model_backend import (
    HTTP_ADAPTERS,
    LOAD_SECONDS,
    NUMBERS,
    ROW,
    SCORE,
    WORDS,
    a_row,
    a_version,
    connected,
    serving,
    word_row,
)

EVERY = pytest.mark.parametrize("adapter", HTTP_ADAPTERS)
OIP_ANSWER = b'{"outputs":[{"name":"p","shape":[1],"datatype":"FP32","data":[321]}]}'


@EVERY
async def test_the_rows_of_a_batch_are_answered_in_their_order_to_the_last_bit(adapter: str):
    async with serving(adapter) as (backend, server):
        numbers = np.random.default_rng(7).normal(size=backend.rows_per_call or 50).astype("<f4")
        rows = [a_row(number, 0, 0) for number in numbers]

        tensor = await backend.infer(rows, LOAD_SECONDS)

        assert tensor.shape == (len(rows),)
        assert tensor.values.astype("<f4").tolist() == numbers.tolist()
        assert server.calls == 1


@EVERY
async def test_strings_go_there_and_come_back(adapter: str):
    async with serving(adapter, inputs=WORDS, output="label") as (backend, _):
        words = ["größe", "", 'a"b\n'][: backend.rows_per_call]

        tensor = await backend.infer([word_row(word) for word in words], LOAD_SECONDS)

        assert tensor.datatype is Datatype.BYTES
        assert [value.decode() for value in tensor.values] == [word.upper() for word in words]


@pytest.mark.parametrize("adapter", ["oip-http", "tfserving-http", "mlflow"])
async def test_the_output_that_the_schema_names_is_returned_among_several(adapter: str):
    async with serving(adapter) as (backend, server):
        server.behaviour.extra_output = True

        assert (await backend.infer([ROW], LOAD_SECONDS)).values.tolist() == [SCORE]


SENT: dict[str, tuple[dict[str, Any], str, Any]] = {
    "oip-http": (
        {"version": "7", "model_name": "a b/c", "path_prefix": "/seldon/"},
        "/seldon/v2/models/a%20b%2Fc/versions/7/infer",
        {
            "inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [0.1, 2.0, 3.0, 1.0, 2.0, 3.0]}],
            "outputs": [{"name": "p"}],
        },
    ),
    "tfserving-http": (
        {"version": "7", "signature_name": "score"},
        "/v1/models/linear/versions/7:predict",
        {"signature_name": "score", "inputs": {"x": [[0.1, 2.0, 3.0], [1.0, 2.0, 3.0]]}},
    ),
    "tfserving-http, rows": (
        {"version": "stable", "format": "row"},
        "/v1/models/linear/labels/stable:predict",
        {"instances": [[0.1, 2.0, 3.0], [1.0, 2.0, 3.0]]},
    ),
    "mlflow": (
        {},
        "/invocations",
        {"dataframe_split": {"columns": ["x"], "data": [[[0.1, 2.0, 3.0]], [[1.0, 2.0, 3.0]]]}},
    ),
    "json": (
        {"body": {"explain": False}},
        "/score",
        {"explain": False, "rows": [{"x": [0.1, 2.0, 3.0]}, {"x": [1.0, 2.0, 3.0]}]},
    ),
}


@pytest.mark.parametrize("kind", SENT)
async def test_each_protocol_asks_as_its_servers_expect_with_floats_in_their_shortest_form(kind: str):
    changed, path, document = SENT[kind]
    async with serving(kind.partition(",")[0], **changed) as (backend, server):
        await backend.infer([a_row(0.1, 2, 3), a_row(1, 2, 3)], LOAD_SECONDS)

        assert (server.paths, server.documents) == ([path], [document])
        (head,) = server.heads
        assert f"host: {server.endpoint}\r\n".encode() in head
        assert b"accept-encoding: identity\r\n" in head


FORMATS = {
    "inputs": {"inputs": [[1.0, 2.0, 3.0]]},
    "instances": {"instances": [[1.0, 2.0, 3.0]]},
    "dataframe_records": {"dataframe_records": [{"x": [1.0, 2.0, 3.0]}]},
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "answer",
    [b'{"predictions": [321]}', b"[321.0]", b'{"predictions": {"p": [321]}}', b'{"predictions": [{"p": 321}]}'],
)
async def test_invocations_are_asked_in_the_format_that_the_version_names_and_read_in_any(form: str, answer: bytes):
    async with serving("mlflow", format=form) as (backend, server):
        server.raw = reply(answer)

        tensor = await backend.infer([ROW], LOAD_SECONDS)

        assert (tensor.shape, tensor.values.tolist()) == ((1,), [SCORE])
        assert server.calls == 1


CHUNKED = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BAD = {
    "a redirect": (reply(b"", "location: http://127.0.0.1:1/", status=307), BackendUnavailable, "a redirect"),
    "huge": (reply(b"[]", length=MAX_ANSWER_BYTES + 1), BadAnswer, "sent an answer of more than 4,194,304 bytes"),
    "huge in chunks": (
        CHUNKED.encode() + b"500000\r\n" + b" " * 0x500000 + b"\r\n",
        BadAnswer,
        "sent an answer of more than 4,194,304 bytes",
    ),
    "an endless head": (
        reply(b"", f"x: {'9' * 900_000}"),
        BackendUnavailable,
        "its head has more than 65,536 bytes",
    ),
    "compressed": (
        reply(b"\x1f\x8b", "content-encoding: gzip"),
        BadAnswer,
        "an answer that is compressed, which was not asked",
    ),
    "longer than it says": (reply(OIP_ANSWER, length=4), BackendUnavailable, "it is longer than it says"),
    "shorter than it says": (reply(OIP_ANSWER, length=900), BackendUnavailable, "the answer ended early"),
    "two lengths": (reply(OIP_ANSWER, "content-length: 3"), BackendUnavailable, "Content-Length"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", BackendUnavailable, "not HTTP/1.1"),
    "another protocol": (
        b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        BackendUnavailable,
        "another protocol",
    ),
    "nothing": (b"", BackendUnavailable, "closed without an answer"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", BadAnswer, "not JSON"),
    "a page": (reply(b"<html>login</html>", "content-type: text/html"), BadAnswer, "not JSON"),
    "NaN": (reply(OIP_ANSWER.replace(b"321", b"NaN")), BadAnswer, "not JSON, or holds NaN"),
    "more than its datatype holds, which decodes to infinity": (
        reply(OIP_ANSWER.replace(b"321", b"1e999")),
        BadAnswer,
        "not JSON",
    ),
    "null": (reply(OIP_ANSWER.replace(b"321", b"null")), BadAnswer, "not of the output's datatype"),
    "text": (reply(OIP_ANSWER.replace(b"321", b'"321"')), BadAnswer, "not of the output's datatype"),
    "too many values": (
        reply(OIP_ANSWER.replace(b"321", b"1,2")),
        BadAnswer,
        "2 values, which does not match its shape",
    ),
    "ragged": (reply(OIP_ANSWER.replace(b"321", b"[1],[2,3]")), BadAnswer, "differ in length"),
    "a shape of text": (reply(OIP_ANSWER.replace(b"[1]", b'["1"]')), BadAnswer, "no shape"),
    "a negative shape": (reply(OIP_ANSWER.replace(b"[1]", b"[-1]")), BadAnswer, r"shape is \[-1\]"),
    "half precision": (reply(OIP_ANSWER.replace(b"FP32", b"FP16")), BadAnswer, "datatype is not supported"),
    "a list": (reply(b"[1]"), BadAnswer, 'no list "outputs"'),
    "of another model": (reply(b'{"model_name":"x",' + OIP_ANSWER[1:]), BadAnswer, "of another model than 'linear'"),
    "a secret page": (reply(b"secret", status=500), BadAnswer, "refused the call with HTTP 500"),
}


@pytest.mark.parametrize("why", BAD)
async def test_a_server_that_answers_badly_is_an_outcome_with_its_reason(why: str):
    raw, kind, words = BAD[why]
    async with serving("oip-http") as (backend, server):
        server.raw, server.closes = raw, True

        with pytest.raises(kind, match=words) as caught:
            await backend.infer([ROW], LOAD_SECONDS)
        server.raw = None

        assert "secret" not in str(caught.value)
        assert (await backend.infer([ROW], LOAD_SECONDS)).values.tolist() == [SCORE]


GOOD = {
    "in chunks": CHUNKED.encode() + b"%x\r\n" % len(OIP_ANSWER) + OIP_ANSWER + b"\r\n0\r\n\r\n",
    "until the connection ends": b"HTTP/1.0 200 OK\r\n\r\n" + OIP_ANSWER,
    "after an interim one": b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + reply(OIP_ANSWER),
    "not compressed, as it says": reply(OIP_ANSWER, "content-encoding: identity"),
    "with another status of success": reply(OIP_ANSWER, status=201),
}


@pytest.mark.parametrize("how", GOOD)
async def test_an_answer_is_read_in_each_form_that_http_has_for_it(how: str):
    async with serving("oip-http") as (backend, server):
        server.raw, server.closes = GOOD[how], True

        assert [(await backend.infer([ROW], LOAD_SECONDS)).values.tolist() for _ in range(3)] == [[SCORE]] * 3


async def test_a_redirect_is_not_followed_to_wherever_it_leads():
    async with (
        running_http(Behaviour(), Behaviour()) as (first, second),
        connected(redirected(first, second)) as backend,
    ):
        with pytest.raises(BackendUnavailable, match="HTTP 302; a redirect, and none is followed"):
            await backend.infer([ROW], LOAD_SECONDS)

        assert (second.connections, first.calls) == (0, 1)


def redirected(first: HttpModelServer, second: HttpModelServer) -> Any:
    first.raw = reply(b"", f"location: http://{second.endpoint}/v2/models/linear/infer", status=302)
    return a_version(first.endpoint, adapter="oip-http")


async def test_connections_are_kept_and_one_that_the_server_closed_costs_no_call():
    async with serving("oip-http") as (backend, server):
        for _ in range(20):
            await backend.infer([ROW], LOAD_SECONDS)
        kept = server.connections
        server.closes = True  # without a word: the next call may be sent before that is known
        for _ in range(20):
            await backend.infer([ROW], LOAD_SECONDS)
        held = replicas_of(backend)

        assert kept == 1
        assert held is not None
        assert (held.in_flight, held.ejected) == (0, 0)


async def test_calls_beyond_the_connections_wait_for_one_and_are_all_answered():
    calls = 2 * MAX_CONNECTIONS + 3
    async with serving("oip-http") as (backend, server):
        server.behaviour.delay_seconds = 0.02

        answers = await asyncio.gather(*(backend.infer([a_row(n, 0, 0)], LOAD_SECONDS) for n in range(calls)))

        assert [answer.values.tolist() for answer in answers] == [[n] for n in range(calls)]
        assert server.connections <= MAX_CONNECTIONS


async def test_calls_that_time_out_or_are_cancelled_give_their_connections_back():
    async with serving("oip-http") as (backend, server):
        server.behaviour.delay_seconds = 30

        async def answered() -> bool:
            with suppress(BackendUnavailable):
                await backend.infer([ROW], LOAD_SECONDS)
                return True
            return False

        calls = [asyncio.ensure_future(backend.infer([ROW], 0.1 + n / 1e3)) for n in range(2 * MAX_CONNECTIONS)]
        await asyncio.sleep(0.05)
        for call in calls[::3]:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        server.behaviour.delay_seconds = 0

        assert {type(end) for end in ends} == {asyncio.CancelledError, DeadlineExceeded}
        assert await eventually(answered, LOAD_SECONDS)  # it is suspect, and asked first
        answers = await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(2 * MAX_CONNECTIONS)))
        assert all(answer.values.tolist() == [SCORE] for answer in answers)


async def test_with_one_of_two_replicas_away_no_call_fails_and_it_is_ejected():
    async with running_http(Behaviour()) as (server,):
        version = a_version(server.endpoint, f"127.0.0.1:{free_port()}", adapter="oip-http")
        async with connected(version) as backend:
            answers = [await backend.infer([ROW], LOAD_SECONDS) for _ in range(60)]
            held = replicas_of(backend)

            assert all(answer.values.tolist() == [SCORE] for answer in answers)
            assert held is not None
            assert held.ejected == 1


@pytest.mark.parametrize(
    ("code", "words"), [(grpc.StatusCode.NOT_FOUND, "HTTP 404"), (grpc.StatusCode.UNAVAILABLE, "HTTP 503")]
)
async def test_a_replica_that_cannot_serve_is_replaced_and_alone_it_is_said(code: grpc.StatusCode, words: str):
    async with running_http(Behaviour(code=code), Behaviour()) as (bad, good):
        async with connected(a_version(bad.endpoint, good.endpoint, adapter="oip-http")) as backend:
            for _ in range(30):
                await backend.infer([ROW], LOAD_SECONDS)
        async with connected(a_version(bad.endpoint, adapter="oip-http")) as backend:
            with pytest.raises(BackendUnavailable, match=words) as caught:
                await backend.infer([ROW], LOAD_SECONDS)

    assert "secret" not in caught.value.detail
    assert "secret" in caught.value.said


async def test_a_late_call_is_hedged_and_the_answer_of_the_other_replica_is_used():
    heard: list[str] = []
    async with running_http(Behaviour(), Behaviour()) as (one, other):
        version = a_version(one.endpoint, other.endpoint, adapter="oip-http")
        backend = connect(version, hedging=Hedging(1.0, 100, heard.append))
        for _ in range(200):
            await backend.infer([ROW], LOAD_SECONDS)
        one.behaviour.delay_seconds = 10
        answers = await asyncio.gather(*(backend.infer([ROW], LOAD_SECONDS) for _ in range(6)))
        await backend.close()

    assert [answer.values.tolist() for answer in answers] == [[SCORE]] * 6
    assert "won" in heard


async def test_closing_fails_the_calls_in_flight_and_cancels_no_caller():
    async with serving("oip-http") as (backend, server):
        server.behaviour.delay_seconds = LOAD_SECONDS
        calls = [asyncio.ensure_future(backend.infer([ROW], LOAD_SECONDS)) for _ in range(5)]

        async def all_asked() -> bool:
            return bool(server.calls == len(calls))

        assert await eventually(all_asked, LOAD_SECONDS)
        await backend.close()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(BackendUnavailable, match="are closed"):
            await backend.infer([ROW], LOAD_SECONDS)

    assert {type(end) for end in ends} == {BackendUnavailable}


@EVERY
async def test_a_token_goes_with_every_call_and_cannot_be_more_than_a_header(adapter: str):
    name = "UNDERSTUDY_BACKEND_TOKEN_A"
    async with running_http() as (server,):
        version = a_version(server.endpoint, adapter=adapter, token_env=name)
        backend = connect(version, {name: "s3cret"})
        await backend.infer([ROW], LOAD_SECONDS)
        await backend.close()
        with pytest.raises(BackendUnavailable, match="characters that no header may have"):
            connect(version, {name: "s3cret\r\nx-admin: 1"})

    assert b"authorization: Bearer s3cret\r\n" in server.heads[0]


UNUSABLE: dict[str, tuple[str, dict[str, Any], str]] = {
    "a path with a line's end": ("json", {"path": "/a\r\nx: y"}, "backend.path"),
    "no path": ("json", {"path": None}, "backend.path"),
    "a prefix with a space": ("mlflow", {"path_prefix": "/a b"}, "backend.path_prefix"),
    "members that are none": ("json", {"body": ["explain"]}, "backend.body"),
    "a form that is none": ("json", {"row": "table"}, "backend.row"),
    "members that JSON cannot hold": ("json", {"body": {"n": 2**70}}, "backend.body cannot be written"),
    "a name that leads elsewhere": ("oip-http", {"model_name": ".."}, "part of the path"),
    "a version that leads elsewhere": ("tfserving-http", {"version": ".."}, "part of the path"),
    "another format": ("mlflow", {"format": "csv"}, "backend.format"),
    "another format of TensorFlow Serving": ("tfserving-http", {"format": "rows"}, "backend.format"),
}


@pytest.mark.parametrize("why", UNUSABLE)
def test_a_setting_that_cannot_be_used_refuses_the_version_and_is_named(why: str):
    adapter, changed, words = UNUSABLE[why]

    with pytest.raises(BackendUnavailable, match=words):
        connect(a_version("127.0.0.1:1", adapter=adapter, **changed))


@pytest.mark.parametrize("adapter", ["mlflow", "tfserving-http", "json"])
def test_a_format_of_rows_needs_a_schema_with_rows(adapter: str):
    inputs = {**NUMBERS, "batch": False}

    with pytest.raises(BackendUnavailable, match=r"input_schema\.batch is false"):
        connect(
            a_version("127.0.0.1:1", adapter=adapter, inputs=inputs, **({"format": "row"} if "tf" in adapter else {}))
        )


async def test_a_service_that_takes_one_row_takes_no_block():
    backend = connect(a_version("127.0.0.1:1", adapter="json-one-row"))

    with pytest.raises(BadAnswer, match="one row a call"):
        await backend.infer_block(Block(ROW, ((1, 3),)), LOAD_SECONDS)
    await backend.close()


async def test_of_a_server_that_does_not_serve_an_examination_says_why():
    refusing = f"127.0.0.1:{free_port()}"
    async with running_http(Behaviour(probes_hang=True)) as (hanging,):
        version = a_version(hanging.endpoint, refusing, adapter="oip-http")
        async with connected(version) as backend:
            found = await examine(backend, 0.3)

    assert [server.problem for server in found] == [
        "it accepted the connection and did not answer within 0.3 s",
        "nothing listens there",
    ]


async def test_addresses_that_an_operator_did_not_permit_are_not_connected_to():
    async with running_http() as (server,):
        backend = connect(a_version(server.endpoint, adapter="oip-http"), rules=parse_rules("10.0.0.0/8"))

        with pytest.raises(ServingError):
            await backend.infer([ROW], LOAD_SECONDS)
        assert not await backend.ready(1.0)
        await backend.close()

    assert server.connections == 0
