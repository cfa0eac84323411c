"""Callers of the gRPC port who open no window for their answers: HTTP/2 by hand, since grpcio's clients always read."""

import asyncio
import re
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from worlds.grpc import Client, refused, start, up
from worlds.http2_port import echo_port

from loadtests.least_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    Frames,
    frame,
    literal,
    reply,
)
from understudy.adapters._proto import understudy_health_pb2 as health
from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.entrypoints.proxy.api import grpc_port
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.entrypoints.proxy.rpc import unread_answers
from understudy.entrypoints.proxy.rpc.http2.listener import ConnectionBounds
from understudy.entrypoints.proxy.rpc.port import MAX_CALLS

__all__ = ["start", "up"]
LIVE = "/inference.GRPCInferenceService/ServerLive"
RST_STREAM, INITIAL_WINDOW = 3, 4
EMPTY = bytes(5)
STREAMS = 520
"""Of a connection; the port takes 1,024 of one, and two have more than the process takes of all."""


class SlowReader:
    """A connection whose window for each answer has no byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._last = -1
        self.frames: Counter[int] = Counter()
        writer.write(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0)))

    def call(self, path: str, message: bytes = EMPTY) -> None:
        self._last += 2
        fields = {
            ":method": "POST", ":scheme": "http", ":path": path, ":authority": "proxy",
            "te": "trailers", "content-type": "application/grpc",
        }  # fmt: skip
        head = b"".join(literal(name.encode(), value.encode()) for name, value in fields.items())
        self._writer.write(frame(HEADERS, END_HEADERS, self._last, head))
        self._writer.write(frame(DATA, END_STREAM, self._last, message))

    async def read(self) -> None:
        frames = Frames()
        while data := await self._reader.read(65_536):
            for one in frames.whole(data):
                self.frames[one.kind] += 1
                self._writer.write(reply(one))

    async def until(self, is_so: Callable[[Counter[int]], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_so(self.frames):  # noqa: ASYNC110 - what is waited for are frames
                await asyncio.sleep(0.01)


@asynccontextmanager
async def slow_reader(port: int) -> AsyncIterator[SlowReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = SlowReader(reader, writer)
    reading = asyncio.create_task(found.read())
    try:
        yield found
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        writer.close()


async def is_live(client: Client) -> bool:
    answer = await client.ask(LIVE, pb.ServerLiveRequest(), pb.ServerLiveResponse, timeout=20)
    return bool(answer.live)


def ended(proxy: Any) -> dict[str, float]:
    page = proxy.telemetry.exposition()[0].decode()
    found = re.findall(r'^grpc_answers_unread_total\{reason="(\w+)"\} (\S+)$', page, re.MULTILINE)
    return {why: float(count) for why, count in found if float(count)}


async def test_answers_that_are_not_taken_hold_no_calls_place_and_end_in_time(up):
    proxy, client = await up(receive_seconds=1)

    async with slow_reader(client.port) as one, slow_reader(client.port) as other:
        for caller in (one, other):
            for _ in range(STREAMS):
                caller.call(LIVE)
            await caller.until(lambda frames: frames[HEADERS] >= STREAMS)
        assert 2 * STREAMS > MAX_CALLS
        assert await is_live(client)
        for caller in (one, other):
            await caller.until(lambda frames: frames[RST_STREAM] == STREAMS)
        assert await is_live(client)
    assert ended(proxy) == {"late": 2 * STREAMS}


async def test_of_too_many_that_stand_those_of_the_connection_that_has_most_give_way(up, monkeypatch):
    monkeypatch.setattr(grpc_port, "MAX_UNREAD", 200)
    # Those that have just come go last: on a slow machine the ten would be the only ones that have not.
    monkeypatch.setattr(unread_answers, "FRESH_SECONDS", 0.0)
    proxy, client = await up()

    async with slow_reader(client.port) as few, slow_reader(client.port) as one, slow_reader(client.port) as other:
        for _ in range(10):
            few.call(LIVE)
        await few.until(lambda frames: frames[HEADERS] >= 10)
        for caller in (one, other):
            for _ in range(100):
                caller.call(LIVE)
        await one.until(lambda frames: one.frames[RST_STREAM] + other.frames[RST_STREAM] > 0)
        assert await is_live(client)
        assert few.frames[RST_STREAM] == 0
    assert ended(proxy).keys() == {"many"}


async def test_memory_pressure_ends_all_that_stand(up):
    proxy, client = await up()

    async with slow_reader(client.port) as caller:
        for _ in range(10):
            caller.call(LIVE)
        await caller.until(lambda frames: frames[HEADERS] >= 10)
        for give_back in proxy.state[OVERLOAD].relief:
            give_back()
        assert await is_live(client)
        await caller.until(lambda frames: frames[RST_STREAM] == 10)


async def test_a_watch_that_is_not_read_ends_and_its_place_is_free(up):
    _, client = await up(receive_seconds=0.1)
    watch = "/grpc.health.v1.Health/Watch"

    async with slow_reader(client.port) as caller:
        for _ in range(64):
            caller.call(watch)
        await caller.until(lambda frames: frames[RST_STREAM] == 64)
        async for one in client.channel.unary_stream(watch)(b""):
            assert health.HealthCheckResponse.FromString(one).status == health.HealthCheckResponse.SERVING
            break


async def test_a_caller_that_leaves_its_answers_is_not_logged(up, caplog):
    _, client = await up()

    for _ in range(3):
        async with slow_reader(client.port) as caller:
            for _ in range(20):
                caller.call(LIVE)
            await caller.until(lambda frames: frames[HEADERS] >= 20)
        assert await is_live(client)

    assert [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []


async def test_an_unknown_service_is_refused_in_our_words(up):
    _, client = await up()

    status, sentence, trailing = await refused(
        client.ask("/no.such.Service/Method", pb.ServerLiveRequest(), pb.ServerLiveResponse)
    )

    assert (status.name, trailing["understudy-code"]) == ("UNIMPLEMENTED", "E111")
    assert "no such service here" in sentence


async def test_a_connection_that_is_too_old_ends_without_a_failed_call():
    bounds = ConnectionBounds(
        connections=16, handshake_seconds=5.0, idle_seconds=300.0, age_seconds=0.2, grace_seconds=120.0
    )
    async with echo_port(bounds) as port, asyncio.timeout(60):
        connections: set[object] = set()

        async def call_on(channel: grpc.aio.Channel) -> None:
            ask: Any = channel.unary_unary("/test.Echo/Echo")
            while len(connections) < 4:
                assert await ask(b"x") == b"x"
                connections.update(port.listener.arrivals)

        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
            await asyncio.gather(*(call_on(channel) for _ in range(8)))
