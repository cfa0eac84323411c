"""What model servers send, frame by frame and by lot: our own client of gRPC makes the same of it as gRPC's library."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import grpc
import grpc.aio
import pytest
from loopback.http2_server import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEADERS,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    Script,
    frame,
    message_of,
    number,
    scripted,
    setting,
)

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.channels import OpenChannel, open_grpcio
from understudy.adapters.model_servers.http2.channel import Http2Channel, open_http2
from understudy.adapters.model_servers.status import result_of, said
from understudy.core.upstream.endpoint_rules import parse_target

METHOD = "/test.Echo/Echo"
LONG_SECONDS = 120.0
AT_ONCE = 16
WIRES = 300
ANY_ORDERS = 300
HELLO = frame(SETTINGS)
MAX_STREAMS, INITIAL_WINDOW = 3, 4
ALL_STREAMS = 2**31 - 1
OWN_WORDS = ("the connection was", "the model server ends", "the answer has no gRPC status")
"""Our own client's, where gRPC's library has others: the server said none."""
Part = Callable[[Peer, int], bytes]
"""Frames for a stream."""


class Wire(NamedTuple):
    """What a server sends for each call, and whether it then closes the connection."""

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    closes: bool

    async def serve(self, peer: Peer) -> None:
        """Be one connection's script."""
        peer.send(HELLO)
        while True:
            stream, _ = await peer.call()
            peer.send(*(part(peer, stream) for part in self.parts))
            if self.closes:
                return


def head(*fields: tuple[str, str], ends: bool = False) -> Part:
    return lambda peer, stream: frame(HEADERS, END_HEADERS | ends * END_STREAM, stream, peer.block(fields))


def of_connection(kind: int, payload: bytes) -> Part:
    return lambda _, __: frame(kind, 0, 0, payload)


def of_stream(kind: int, payload: bytes, flags: int = 0) -> Part:
    return lambda _, stream: frame(kind, flags, stream, payload)


ASIDE: dict[str, Part] = {
    "ping": of_connection(PING, b"12345678"),
    "settings": of_connection(SETTINGS, setting(INITIAL_WINDOW, 100)),
    "one stream": of_connection(SETTINGS, setting(MAX_STREAMS, 1)),
    "window": of_connection(WINDOW_UPDATE, number(100)),
    "stream's window": of_stream(WINDOW_UPDATE, number(100)),
    "unknown": of_connection(0x77, b"abc"),
    "priority": of_stream(PRIORITY, bytes(5)),
    "goaway": of_connection(GOAWAY, number(ALL_STREAMS) + number(0)),
    "goaway, told again": of_connection(GOAWAY, number(1) + number(0)),
}
"""What changes nothing for a call that the server has taken."""
CUTS: dict[str, Part] = {
    **{f"reset {code}": of_stream(RST_STREAM, number(code)) for code in (0, 1, 2, 3, 5, 7, 8, 9, 11, 12, 13, 99)},
    "not taken": of_connection(GOAWAY, number(0) + number(0)),
    "not taken, calm": of_connection(GOAWAY, number(0) + number(11) + b"why"),
}
WHOLE = head(*HEAD)
FULL_HEADS = {
    "head": WHOLE,
    "head of html": head((":status", "200"), ("content-type", "text/html")),
    "head without a type": head((":status", "200")),
}
OUT_OF_PLACE: dict[str, Part] = {
    "103": head((":status", "103")),
    "200 without a status": head(*HEAD, ends=True),
    "503": head((":status", "503")),
    "status in a head": head(*HEAD, ("grpc-status", "7")),
    "data that ends": of_stream(DATA, message_of(b"answer"), END_STREAM),
    "half a message": of_stream(DATA, message_of(b"answer")[:7]),
    "no data": of_stream(DATA, b""),
    "no fields": of_stream(HEADERS, b"", END_HEADERS),
}


def trailers(chance: Random) -> tuple[str, Part]:
    """Return the end of a call: most are good."""
    code = chance.choice([0] * 8 + list(range(17)))
    said = chance.choice(["", "no such model", "50%25 of Z%C3%BCrich", "a%0D%0Ab", "%%4", "x" * 3_000])
    fields = (("grpc-status", str(code)), ("x-more", "y")) + ((("grpc-message", said),) if code else ())
    return f"status {code} {said[:20]}", head(*fields, ends=True)


def only_trailers(chance: Random) -> tuple[str, Part]:
    if chance.random() < 0.5:
        status = chance.choice(["400", "401", "403", "404", "429", "500", "502", "503", "504", "204", "302"])
        return f"HTTP {status}", head((":status", status), ("content-type", "text/html"), ends=True)
    code = chance.randrange(17)
    return f"only status {code}", head(*HEAD, ("grpc-status", str(code)), ("grpc-message", "words"), ends=True)


def message(chance: Random) -> list[tuple[str, Part]]:
    """Return a message in some frames."""
    content = message_of(chance.randbytes(chance.choice([0, 1, 60, 3_000])))
    cuts = sorted(chance.randrange(len(content) + 1) for _ in range(chance.randrange(4)))
    pieces = [content[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    return [(f"data {len(piece)}", of_stream(DATA, piece)) for piece in pieces]


def drawn_wire(chance: Random) -> Wire:
    """Return an answer as gRPC's protocol has it, perhaps cut off, among frames that are nothing to it."""
    if chance.random() < 0.3:
        answer = [only_trailers(chance)]
    else:
        answer = [chance.choice(list(FULL_HEADS.items())), *message(chance), trailers(chance)]
    closes = False
    if chance.random() < 0.3:
        answer = answer[: chance.randrange(len(answer))]
        closes = chance.random() < 0.3
        if not closes:
            answer.append(chance.choice(list(CUTS.items())))
    for _ in range(chance.choice([0, 0, 1, 3])):
        answer.insert(chance.randrange(len(answer) + 1), chance.choice(list(ASIDE.items())))
    return Wire(tuple(name for name, _ in answer), tuple(part for _, part in answer), closes)


class Ended(NamedTuple):
    """How a call ended."""

    code: str
    means: str
    """For the replica that was called."""
    words: str
    answer: bytes | None


async def ended(open_channel: OpenChannel, script: Script) -> Ended:
    async with scripted(script) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_channel("m", target, [target.literal], PLAIN_WIRE)
        try:
            answer = await channel.method(METHOD)(b"request", timeout=LONG_SECONDS, metadata=(), wait_for_ready=True)
            return Ended("OK", "", "", answer)
        except grpc.aio.AioRpcError as error:
            return Ended(error.code().name, result_of(error, None).name, said(error), None)
        finally:
            await channel.close()


async def test_an_answer_or_what_is_left_of_it_means_the_same_to_both_clients():
    chance = Random("wires")
    wires = [drawn_wire(chance) for _ in range(WIRES)]
    places = asyncio.Semaphore(AT_ONCE)

    async def both(wire: Wire) -> tuple[Ended, Ended]:
        async with places:
            return await ended(open_http2, wire.serve), await ended(open_grpcio, wire.serve)

    unlike = [
        (wire.names, wire.closes, ours, theirs)
        for wire, (ours, theirs) in zip(wires, await asyncio.gather(*map(both, wires)), strict=True)
        if ours != (theirs._replace(words=ours.words) if ours.words.startswith(OWN_WORDS) else theirs)
    ]
    assert unlike == []


async def of_any_order(parts: tuple[Part, ...]) -> tuple[bytes | None, bytes, Http2Channel]:
    """Return what a call is answered with by frames in any order, and the next call by a good connection."""

    async def disorderly(peer: Peer) -> None:
        await Wire((), parts, closes=True).serve(peer)

    async def good(peer: Peer) -> None:
        peer.send(HELLO)
        while True:
            peer.answer(*(await peer.call()))

    async with scripted(disorderly, good) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_http2("m", target, [target.literal], PLAIN_WIRE)
        send = channel.method(METHOD)
        try:
            first: bytes | None = await send(b"request", timeout=LONG_SECONDS, metadata=())
        except grpc.aio.AioRpcError:
            first = None
        again = b""
        while again != b"again":  # the first connection may be on its way out
            try:
                again = await send(b"again", timeout=LONG_SECONDS, metadata=(), wait_for_ready=True)
            except grpc.aio.AioRpcError:
                again = b""
        assert sum(connection.in_flight for connection in channel._connections()) == 0  # noqa: SLF001 - not shown
        await channel.close()
    return first, again, channel


@pytest.mark.parametrize("seed", range(3))
async def test_frames_in_any_order_end_a_call_and_never_the_channel(seed: int):
    chance = Random(seed)
    parts = {
        **ASIDE,
        **CUTS,
        **OUT_OF_PLACE,
        **FULL_HEADS,
        "a message": of_stream(DATA, message_of(b"answer")),
        "an end": head(("grpc-status", "0"), ends=True),
    }
    places = asyncio.Semaphore(AT_ONCE)

    async def one(names: list[str]) -> None:
        async with places:
            first, _, _ = await of_any_order(tuple(parts[name] for name in names))
        assert first in (None, b"answer", b"request", b"again"), names

    await asyncio.gather(*(one(chance.choices(list(parts), k=chance.randrange(1, 8))) for _ in range(ANY_ORDERS // 3)))
