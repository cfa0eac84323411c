"""Callers of the gRPC port who break HTTP/2 or flood it: each ends with the right code, soon, and nothing is left."""

import asyncio
import resource
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from loopback.certificates import Authority
from loopback.http2_server import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    number,
)
from worlds.http2_port import (
    BOUNDS,
    DEFECT,
    ECHO,
    LIMIT_BYTES,
    MEMORY_BYTES,
    WAIT,
    EchoPort,
    block_of,
    call,
    echo_port,
    fields_of,
    head,
    message_of,
    not_reading,
    raw_caller,
    setting,
)

from understudy.adapters.http2.frames import ErrorCode
from understudy.entrypoints.proxy.rpc.http2.calls import MAX_STREAMS
from understudy.entrypoints.proxy.rpc.http2.listener import LATE_SECONDS

CPU_SECONDS = 3.0
"""Of one attack, on both of its sides."""
GROWTH_BYTES = 64 * 1_048_576
MANY = 20_000
GREETING = PREFACE + frame(SETTINGS)


def bomb() -> bytes:
    """A header of 4 KB that a table keeps, and a byte for each time that it is meant."""
    length = 3_900 - 127
    stored = b"\x40\x01a\x7f" + bytes([length & 0x7F | 0x80, length >> 7]) + b"a" * 3_900
    return frame(HEADERS, END_HEADERS, 1, block_of(fields_of()) + stored + b"\xbe" * 12_000)


def late_data() -> bytes:
    return head(1, WAIT) + frame(DATA, END_STREAM, 1, message_of(b"x")) + frame(DATA, 0, 1, b"more")


PROTOCOL, SIZE, FLOW = ErrorCode.PROTOCOL_ERROR, ErrorCode.FRAME_SIZE_ERROR, ErrorCode.FLOW_CONTROL_ERROR
COMPRESSION, CALM = ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM
WRONG: dict[str, tuple[bytes, ErrorCode]] = {
    "another protocol": (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", PROTOCOL),
    "a preface cut off by another": (PREFACE[:10] + b"x" * 20, PROTOCOL),
    "no settings first": (PREFACE + frame(PING, payload=bytes(8)), PROTOCOL),
    "an acknowledgement first": (PREFACE + frame(SETTINGS, ACK), PROTOCOL),
    "a frame over the limit": (GREETING + frame(DATA, 0, 1, bytes(16_385)), SIZE),
    "a push": (GREETING + frame(PUSH_PROMISE, END_HEADERS, 1, number(2) + b"\x88"), PROTOCOL),
    "data on the connection": (GREETING + frame(DATA, 0, 0, b"x"), PROTOCOL),
    "data on a stream that was not opened": (GREETING + frame(DATA, 0, 3, b"x"), PROTOCOL),
    "data on a stream of ours": (GREETING + frame(DATA, 0, 2, b"x"), PROTOCOL),
    "a header on the connection": (GREETING + head(0), PROTOCOL),
    "a header on a stream of ours": (GREETING + head(2), PROTOCOL),
    "a header on a stream that was passed over": (GREETING + call(5) + head(3), ErrorCode.STREAM_CLOSED),
    "data behind the end": (GREETING + late_data(), ErrorCode.STREAM_CLOSED),
    "a second header": (GREETING + head(1, WAIT) + head(1), PROTOCOL),
    "a reset of a stream that was not opened": (GREETING + frame(RST_STREAM, 0, 5, number(8)), PROTOCOL),
    "a reset of the connection": (GREETING + frame(RST_STREAM, 0, 0, number(8)), PROTOCOL),
    "a reset cut off": (GREETING + call(1) + frame(RST_STREAM, 0, 1, b"x"), SIZE),
    "a window of a stream that was not opened": (GREETING + frame(WINDOW_UPDATE, 0, 5, number(8)), PROTOCOL),
    "a window that grows by nothing": (GREETING + frame(WINDOW_UPDATE, 0, 0, number(0)), PROTOCOL),
    "a window over its limit": (GREETING + frame(WINDOW_UPDATE, 0, 0, number(2**31 - 1)), FLOW),
    "a stream's window over its limit": (
        GREETING + head(1, WAIT) + frame(WINDOW_UPDATE, 0, 1, number(2**31 - 1)), FLOW,
    ),
    "a window cut off": (GREETING + frame(WINDOW_UPDATE, 0, 0, b"xx"), SIZE),
    "settings cut off": (GREETING + frame(SETTINGS, payload=b"x" * 7), SIZE),
    "settings on a stream": (GREETING + frame(SETTINGS, 0, 1), PROTOCOL),
    "an acknowledgement with settings": (GREETING + frame(SETTINGS, ACK, 0, setting(4, 1)), SIZE),
    "frames that may be too short": (GREETING + frame(SETTINGS, payload=setting(5, 100)), PROTOCOL),
    "a setting of pushes that is no truth": (GREETING + frame(SETTINGS, payload=setting(2, 2)), PROTOCOL),
    "an initial window over its limit": (GREETING + frame(SETTINGS, payload=setting(4, 2**31)), FLOW),
    "a ping of a wrong size": (GREETING + frame(PING, payload=b"short"), SIZE),
    "a ping on a stream": (GREETING + frame(PING, 0, 1, bytes(8)), PROTOCOL),
    "a goaway cut off": (GREETING + frame(GOAWAY, payload=bytes(4)), SIZE),
    "a priority of a wrong size": (GREETING + frame(PRIORITY, 0, 1, bytes(4)), SIZE),
    "padding longer than its frame": (GREETING + head(1) + frame(DATA, PADDED, 1, b"\xff" + bytes(9)), PROTOCOL),
    "a header without its priority": (GREETING + frame(HEADERS, PRIORITISED | END_HEADERS, 1, b"\x88"), SIZE),
    "a continuation of nothing": (GREETING + frame(CONTINUATION, END_HEADERS, 1, b"\x88"), PROTOCOL),
    "a header that goes on with another frame": (
        GREETING + frame(HEADERS, 0, 1, b"\x83") + frame(PING, payload=bytes(8)), PROTOCOL,
    ),
    "a header that goes on on another stream": (
        GREETING + frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, END_HEADERS, 3), PROTOCOL,
    ),
    "fields that cannot be read": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"), COMPRESSION),
    "an index that the table has not": (GREETING + frame(HEADERS, END_HEADERS, 1, b"\xbe"), COMPRESSION),
    "three sizes of the table in a block": (
        GREETING + frame(HEADERS, END_HEADERS, 1, b"\x20\x3f\xe1\x1f\x20\x83"), COMPRESSION,
    ),
    "an HPACK bomb": (GREETING + bomb(), COMPRESSION),
    "a header that does not end": (
        GREETING + frame(HEADERS, 0, 1, b"a" * 16_000) + frame(CONTINUATION, 0, 1, b"a" * 16_000) * 600, CALM,
    ),
    "more of a message than its window": (
        GREETING + head(1, WAIT)
        + frame(DATA, 0, 1, b"\0\0\x0f\xff\xff" + bytes(16_000)) + frame(DATA, 0, 1, bytes(16_384)) * 4,
        FLOW,
    ),
}  # fmt: skip


def _heads(block: bytes, many: int) -> bytes:
    return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, block) for n in range(many))


FLOODS: dict[str, bytes] = {
    "empty continuations": frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, 0, 1) * MANY,
    "settings": frame(SETTINGS, payload=setting(4, 65_535)) * MANY,
    "acknowledgements": frame(SETTINGS, ACK) * MANY,
    "pings": frame(PING, payload=bytes(8)) * MANY,
    "acknowledged pings": frame(PING, ACK, 0, bytes(8)) * MANY,
    "priorities": frame(PRIORITY, 0, 1, bytes(5)) * MANY,
    "frames of no known kind": frame(0x77) * MANY,
    "windows": frame(WINDOW_UPDATE, 0, 0, number(1)) * MANY,
    "a stream's windows": head(1, WAIT) + frame(WINDOW_UPDATE, 0, 1, number(1)) * MANY,
    "empty data": head(1) + frame(DATA, 0, 1) * MANY,
    "padding without data": head(1) + frame(DATA, PADDED, 1, b"\0") * MANY,
    "goaways": frame(GOAWAY, payload=number(0) + number(0)) * MANY,
    "rapid resets": b"".join(head(2 * n + 1) + frame(RST_STREAM, 0, 2 * n + 1, number(8)) for n in range(MANY)),
    "resets of one call": call(1, b"x", WAIT) + frame(RST_STREAM, 0, 1, number(8)) * MANY,
    "headers of many fields that are no requests": _heads(b"\x83" * 1_000, 1_000),
    "headers of many fields that are too long": _heads(block_of(fields_of()) + b"\x00\x01a\x00" * 1_200, 1_000),
    "calls that are no requests": b"".join(frame(HEADERS, END_HEADERS, 2 * n + 1, b"\x83") for n in range(MANY)),
}


async def attacked(port: EchoPort, attack: bytes) -> int:
    """Return the code with which the port ends a connection."""
    async with raw_caller(port.port, greets=False) as caller:
        sending = asyncio.create_task(send_all(caller.writer, attack))
        frames = await caller.until_end()
        sending.cancel()
        await asyncio.wait([sending])
    goaways = [one for one in frames if one.kind == GOAWAY]
    return int.from_bytes(goaways[-1].payload[4:8])


async def send_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    try:
        for at in range(0, len(data), 65_536):
            writer.write(data[at : at + 65_536])
            await writer.drain()
    except ConnectionError:
        pass


async def nothing_is_left(port: EchoPort, tasks_before: int) -> None:
    async with asyncio.timeout(10):
        while port.listener.arrivals or len(asyncio.all_tasks()) > tasks_before:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
    assert port.budget.held_bytes == 0
    assert len(port.unread) == 0


@pytest.mark.parametrize("name", WRONG)
async def test_what_breaks_the_protocol_ends_the_connection_with_the_right_code(name):
    attack, code = WRONG[name]
    async with echo_port() as port:
        tasks = len(asyncio.all_tasks())

        assert ErrorCode(await attacked(port, attack)) is code
        await nothing_is_left(port, tasks)


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_the_connection_soon_and_in_bounded_memory(name):
    async with echo_port() as port:
        tasks, began = len(asyncio.all_tasks()), time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        assert await attacked(port, GREETING + FLOODS[name]) == CALM
        await nothing_is_left(port, tasks)

        assert time.process_time() - began < CPU_SECONDS
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) * 1_024 < GROWTH_BYTES


NO_REQUESTS: dict[str, list[tuple[str, str]]] = {
    "no path": [one for one in fields_of() if one[0] != ":path"],
    "no method": [one for one in fields_of() if one[0] != ":method"],
    "a path without a slash": fields_of("x"),
    "two methods": [(":method", "POST"), *fields_of()],
    "a field of the request behind others": [*fields_of(), (":authority", "x")],
    "a field that requests have not": [(":status", "200"), *fields_of()],
    "a name in capitals": fields_of(ECHO, ("X-Entity-Id", "x")),
    "a name with a blank": fields_of(ECHO, ("x y", "x")),
    "a field of HTTP/1.1": fields_of(ECHO, ("connection", "close")),
    "a value with a line's end": fields_of(ECHO, ("x", "a\r\nb: c")),
    "a value with a zero": fields_of(ECHO, ("x", "a\0b")),
}


@pytest.mark.parametrize("name", NO_REQUESTS)
async def test_what_is_no_request_ends_its_stream_alone(name):
    async with echo_port() as port, raw_caller(port.port) as caller:
        caller.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block_of(NO_REQUESTS[name])), call(3))
        await caller.until_whole(3)

        resets = {one.stream: int.from_bytes(one.payload) for one in caller.frames if one.kind == RST_STREAM}
        assert resets == {1: PROTOCOL}
        assert port.begun == 1


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([("content-type", "application/json") if one[0] == "content-type" else one for one in fields_of()], "415"),
        ([(":method", "GET") if one[0] == ":method" else one for one in fields_of()], "405"),
    ],
)
async def test_what_is_no_call_of_grpcs_is_refused_as_http_does(fields, found):
    async with echo_port() as port, raw_caller(port.port) as caller:
        caller.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block_of(fields)), call(3))
        await caller.until_whole(1, 3)

    assert caller.answers.fields[1] == [(":status", found)]


async def test_more_calls_than_a_connection_may_have_are_refused_to_be_sent_again():
    async with echo_port() as port, raw_caller(port.port) as caller:
        caller.send(*(call(2 * n + 1, b"x", WAIT) for n in range(MAX_STREAMS + 2)))
        found = [await caller.find(RST_STREAM) for _ in range(2)]

        assert {int.from_bytes(one.payload) for one in found} == {ErrorCode.REFUSED_STREAM}
        port.open.set()
        await caller.until_whole(*(2 * n + 1 for n in range(MAX_STREAMS)))
        assert port.begun == MAX_STREAMS


MESSAGES: dict[str, tuple[bytes, str]] = {
    "announced too long": (frame(DATA, 0, 1, b"\0\xff\xff\xff\xff"), "E103"),
    "announced a byte too long": (frame(DATA, 0, 1, b"\0" + (LIMIT_BYTES + 1).to_bytes(4)), "E103"),
    "cut off": (frame(DATA, END_STREAM, 1, message_of(b"abc")[:-1]), "E100"),
    "cut off in its length": (frame(DATA, END_STREAM, 1, b"\0\0"), "E100"),
    "none": (frame(DATA, END_STREAM, 1), "E100"),
    "two": (frame(DATA, END_STREAM, 1, message_of(b"a") + message_of(b"b")), "E111"),
    "of a third kind": (frame(DATA, END_STREAM, 1, b"\2\0\0\0\0"), "E100"),
}


@pytest.mark.parametrize("name", MESSAGES)
async def test_what_is_no_message_within_the_bound_fails_its_call_alone(name):
    data, code = MESSAGES[name]
    async with echo_port() as port, raw_caller(port.port) as caller:
        caller.send(head(1), data, call(3))
        await caller.until_whole(1, 3)

        assert dict(caller.answers.fields[1])["grpc-message"] == code
        assert caller.answers.bodies[3] == message_of(b"x")


async def test_pieces_of_messages_that_do_not_end_are_bounded_by_the_memory_for_bodies():
    piece = b"\0" + LIMIT_BYTES.to_bytes(4) + bytes(16_000)
    held: list[int] = []
    async with echo_port() as port, raw_caller(port.port) as caller:
        for n in range(400):
            caller.send(head(2 * n + 1), frame(DATA, 0, 2 * n + 1, piece))
            held.append(port.budget.held_bytes)
            await caller.writer.drain()
            await asyncio.sleep(0)
        await caller.find(RST_STREAM)

        assert max(held) <= MEMORY_BYTES
        assert any(dict(fields).get("grpc-message") == "E507" for fields in caller.answers.fields.values())


async def test_a_connection_that_reads_nothing_is_ended_and_its_answers_with_it():
    async with echo_port() as port:
        tasks = len(asyncio.all_tasks())
        reader, writer = await asyncio.open_connection("127.0.0.1", port.port, limit=1)
        assert reader is not None
        writer.write(PREFACE + frame(SETTINGS, payload=setting(4, 2**31 - 1)))
        writer.write(frame(WINDOW_UPDATE, 0, 0, number(2**31 - 65_536)))
        for n in range(1_000):
            writer.write(call(2 * n + 1, bytes(16_000)))
        await nothing_is_left_of(port, tasks)
        writer.close()

    assert {why for why, _ in port.ended} <= {"late", "many"}


async def nothing_is_left_of(port: EchoPort, tasks: int) -> None:
    async with asyncio.timeout(15):
        while not port.begun:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
        while port.listener.arrivals or len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
    assert len(port.unread) == 0


@pytest.mark.parametrize("said", [b"", PREFACE[:5], PREFACE, PREFACE + b"\0\0"])
async def test_a_connection_that_does_not_greet_is_ended_in_time(said: bytes):
    async with echo_port() as port, raw_caller(port.port, greets=False) as caller:
        caller.send(said)
        frames = await caller.until_end()

    assert int.from_bytes(frames[-1].payload[4:8]) == ErrorCode.SETTINGS_TIMEOUT


async def test_a_header_that_comes_piece_by_piece_without_an_end_is_ended_in_time():
    async with echo_port() as port, raw_caller(port.port) as caller:
        await caller.find(SETTINGS)  # it is acknowledged, which may not be in the midst of a header
        caller.send(frame(HEADERS, 0, 1, b"\x83"))
        ending = asyncio.create_task(caller.until_end())
        while not ending.done():
            caller.send(frame(CONTINUATION, 0, 1, b"\x83" * 64))
            await asyncio.wait([ending], timeout=0.1)

    assert int.from_bytes((await ending)[-1].payload[4:8]) == CALM


async def test_beyond_the_bound_on_connections_the_one_that_is_idle_longest_gives_way():
    async with (
        echo_port(replace(BOUNDS, connections=2, handshake_seconds=5.0)) as port,
        raw_caller(port.port) as idle,
        raw_caller(port.port) as busy,
    ):
        for caller, path in ((idle, ECHO), (busy, WAIT)):
            caller.send(call(1, b"x", path))
        await idle.until_whole(1)
        await asyncio.sleep(LATE_SECONDS + 0.1)
        async with raw_caller(port.port) as new:
            new.send(call(1))
            await new.until_whole(1)
            assert (await idle.until_end())[-1].kind == GOAWAY
            port.open.set()
            await busy.until_whole(1)


async def test_over_tls_a_caller_that_agrees_on_no_protocol_is_turned_away(tmp_path: Path):
    made = Authority(tmp_path).sign("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    found: dict[str, bytes] = {}
    async with echo_port(tls=context) as port:
        for protocols in ((), ("http/1.1",), ("h2",)):
            trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            if protocols:
                trusting.set_alpn_protocols(list(protocols))
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port, ssl=trusting)
            writer.write(GREETING + call(1))
            async with asyncio.timeout(10):
                found[",".join(protocols)] = await answered(reader)
            writer.close()

    assert (b"grpc-status" in found["h2"]) > any(b"grpc-status" in found[name] for name in ("", "http/1.1"))


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until an answer has come, or the end."""
    found = b""
    while b"grpc-status" not in found:
        more = await reader.read(65_536)
        if not more:
            break
        found += more
    return found


async def test_a_defect_behind_a_call_ends_its_stream_alone(caplog):
    async with echo_port() as port, raw_caller(port.port) as caller:
        caller.send(call(1, b"x", DEFECT), call(3))
        await caller.until_whole(3)
        reset = next((one for one in caller.frames if one.kind == RST_STREAM), None) or await caller.find(RST_STREAM)

        assert (reset.stream, int.from_bytes(reset.payload)) == (1, ErrorCode.INTERNAL_ERROR)
        caller.send(call(5))
        await caller.until_whole(5)


async def test_a_caller_that_closes_its_half_and_reads_nothing_is_let_go_soon():
    async with echo_port() as port:
        silent, _ = await not_reading(port)
        began = time.monotonic()
        silent.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(30):
            while port.listener.arrivals:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
        silent.close()

    assert time.monotonic() - began < 5
