"""Model servers that break HTTP/2 or flood it: each ends its connection, soon and with bounded memory."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest
from loopback.http2_server import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    message_of,
    number,
    scripted,
    setting,
)

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.core.upstream.endpoint_rules import parse_target

METHOD = "/test.Echo/Echo"
HELLO = frame(SETTINGS)
SECONDS = 20.0
CPU_SECONDS = 2.0
"""Of one attack; the dearest took a tenth of it."""
MANY = 20_000
Attack = Callable[[Peer], bytes]


def late_data(peer: Peer) -> bytes:
    head, end = peer.head(1), peer.trailers(1)
    return head + frame(DATA, 0, 1, message_of(b"x")) + end + frame(DATA, 0, 1, b"more")


def bomb(peer: Peer) -> bytes:
    """A header of 4 KB that a table keeps, and a byte for each time that it is meant."""
    del peer
    length = 3_900 - 127
    stored = b"\x40\x01a\x7f" + bytes([length & 0x7F | 0x80, length >> 7]) + b"a" * 3_900
    return frame(HEADERS, END_HEADERS, 1, b"\x88" + stored + b"\xbe" * 12_000)


def informational(block: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS, 1, block + b"\x08\x03103")


WRONG: dict[str, Attack] = {
    "a frame over the limit": lambda _: frame(DATA, 0, 1, bytes(16_385)),
    "a push": lambda peer: frame(PUSH_PROMISE, END_HEADERS, 1, number(2) + peer.block(())),
    "data on a stream that was not opened": lambda _: frame(DATA, 0, 3, b"x"),
    "a header on a stream of the server's": lambda peer: peer.head(2),
    "data on the connection": lambda _: frame(DATA, 0, 0, b"x"),
    "a reset of a stream that was not opened": lambda _: frame(RST_STREAM, 0, 5, number(8)),
    "a reset cut off": lambda _: frame(RST_STREAM, 0, 1, b"x"),
    "a window of a stream that was not opened": lambda _: frame(WINDOW_UPDATE, 0, 5, number(8)),
    "more of an answer than its window": lambda peer: peer.head(1) + frame(DATA, PADDED, 1, b"\xff" + bytes(255)) * 257,
    "fields that cannot be read": lambda _: frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff"),
    "an HPACK bomb": bomb,
    "three sizes of the table in a block": lambda _: frame(HEADERS, END_HEADERS, 1, b"\x20\x3f\xe1\x1f\x20\x88"),
    "an index that the table has not": lambda _: frame(HEADERS, END_HEADERS, 1, b"\xbe"),
    "a header that does not end": lambda _: (
        frame(HEADERS, 0, 1, b"a" * 16_000) + frame(CONTINUATION, 0, 1, b"a" * 16_000) * 600
    ),
    "a header that goes on with another frame": lambda _: frame(HEADERS, 0, 1, b"\x88") + frame(PING, payload=bytes(8)),
    "a header that goes on on another stream": lambda _: frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 4, 3, b""),
    "a continuation of nothing": lambda _: frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
    "a window that grows by nothing": lambda _: frame(WINDOW_UPDATE, 0, 0, number(0)),
    "a window over its limit": lambda _: frame(WINDOW_UPDATE, 0, 0, number(2**31 - 1)),
    "a stream's window over its limit": lambda _: frame(WINDOW_UPDATE, 0, 1, number(2**31 - 1)),
    "a window cut off": lambda _: frame(WINDOW_UPDATE, 0, 0, b"xx"),
    "settings cut off": lambda _: frame(SETTINGS, payload=b"x" * 7),
    "settings on a stream": lambda _: frame(SETTINGS, 0, 1),
    "an acknowledgement with settings": lambda _: frame(SETTINGS, ACK, 0, setting(4, 1)),
    "frames that may be too short": lambda _: frame(SETTINGS, payload=setting(5, 100)),
    "a setting of pushes": lambda _: frame(SETTINGS, payload=setting(2, 1)),
    "an initial window over its limit": lambda _: frame(SETTINGS, payload=setting(4, 2**31)),
    "a ping of a wrong size": lambda _: frame(PING, payload=b"short"),
    "a goaway cut off": lambda _: frame(GOAWAY, payload=bytes(4)),
    "padding longer than its frame": lambda _: frame(DATA, PADDED, 1, b"\xff" + bytes(9)),
    "a header without its priority": lambda _: frame(HEADERS, PRIORITISED | END_HEADERS, 1, b"\x88"),
}
FLOODS: dict[str, Attack] = {
    "empty continuations": lambda _: frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1) * MANY,
    "settings": lambda _: frame(SETTINGS, payload=setting(4, 65_535)) * MANY,
    "acknowledgements": lambda _: frame(SETTINGS, ACK) * MANY,
    "pings": lambda _: frame(PING, payload=bytes(8)) * MANY,
    "priorities": lambda _: frame(PRIORITY, 0, 1, bytes(5)) * MANY,
    "frames of no known kind": lambda _: frame(0x77) * MANY,
    "a number that does not end": lambda _: (
        frame(HEADERS, 0, 1, b"\xff" * 16_000)
        + frame(CONTINUATION, 0, 1, b"\xff" * 16_000) * 3
        + frame(CONTINUATION, END_HEADERS, 1)
    ),
    "windows": lambda _: frame(WINDOW_UPDATE, 0, 1, number(1)) * MANY,
    "empty data": lambda peer: peer.head(1) + frame(DATA, 0, 1) * MANY,
    "padding without data": lambda peer: peer.head(1) + frame(DATA, PADDED, 1, b"\0") * MANY,
    "informational answers": lambda peer: (
        frame(HEADERS, END_HEADERS, 1, peer.block(((":status", "103"),)))
        + frame(HEADERS, END_HEADERS, 1, b"\xbe") * MANY
    ),
    "informational answers of many fields": lambda _: informational(b"\0\1a\0" * 1_900) * 1_000,
    "resets": lambda _: frame(RST_STREAM, 0, 1, number(8)) * MANY,
    "goaways": lambda _: frame(GOAWAY, payload=number(1) + number(0)) * MANY,
}


async def ended_by(attack: Attack) -> tuple[grpc.StatusCode, str, float]:
    """Return how a call ends under an attack, and the processor time that it took; the connection has ended, too."""
    is_over = asyncio.Event()

    async def attacks(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.call()
        peer.send(attack(peer))
        try:
            while True:
                await peer.receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            is_over.set()

    async with scripted(attacks) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_http2("m", target, [target.literal], PLAIN_WIRE)
        began = time.process_time()
        failure = await failure_of(channel.method(METHOD)(b"request", timeout=SECONDS, metadata=()))
        async with asyncio.timeout(SECONDS):
            await is_over.wait()
        took = time.process_time() - began
        await channel.close()
    return (*failure, took)


async def failure_of(call: Awaitable[bytes]) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("attack", WRONG.values(), ids=WRONG)
async def test_a_server_that_breaks_a_rule_loses_the_connection_and_its_call_is_unavailable(attack: Attack):
    code, details, _ = await ended_by(attack)

    assert (code, details.partition(":")[0]) == (
        grpc.StatusCode.UNAVAILABLE,
        "the model server broke the rules of HTTP/2",
    )


@pytest.mark.parametrize(("size", "count"), [(64, MANY), (16_384, 200)])
async def test_a_call_that_has_ended_is_sent_no_more_than_its_window(size: int, count: int):
    code, _, took = await ended_by(lambda _: frame(DATA, 0, 1, b"x") + frame(DATA, 0, 1, bytes(size)) * count)

    assert code is grpc.StatusCode.INTERNAL
    assert took < CPU_SECONDS


async def test_data_after_an_answer_ends_the_connection_and_not_the_call_that_was_answered():
    assert (await ended_by(late_data))[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("attack", FLOODS.values(), ids=FLOODS)
async def test_a_flood_ends_the_connection_before_it_costs_much(attack: Attack):
    code, _, took = await ended_by(attack)

    assert code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert took < CPU_SECONDS


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(PING, payload=bytes(8)), b"x" * 100])
async def test_what_does_not_begin_with_settings_is_no_connection(greeting: bytes):
    async def greets(peer: Peer) -> None:
        peer.send(greeting)
        await peer.find(GOAWAY)

    async with scripted(greets) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_http2("m", target, [target.literal], PLAIN_WIRE)
        code, details = await failure_of(channel.method(METHOD)(b"request", timeout=SECONDS, metadata=()))
        await channel.close()

    assert (code, details.partition(";")[0]) == (
        grpc.StatusCode.UNAVAILABLE,
        "failed to connect to all addresses",
    )
