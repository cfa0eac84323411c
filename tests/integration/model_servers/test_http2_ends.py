"""How connections of our own client over HTTP/2 end: servers that leave, drain, stall, or are late with everything."""

import asyncio
import gc

import grpc
import grpc.aio
import pytest
from loopback.http2_server import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    number,
    setting,
)
from worlds.http2 import connected

from understudy.adapters.model_servers.http2.channel import Http2Channel
from understudy.adapters.model_servers.http2.connection import Http2Connection
from understudy.adapters.model_servers.http2.dialling import MAX_LOST_AGAIN
from understudy.errors import BackendUnavailable

METHOD = "/test.Echo/Echo"
SECONDS = 20.0
HELLO = frame(SETTINGS)
GRACEFUL = frame(GOAWAY, payload=number(2**31 - 1) + number(0))
MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = 3, 4, 5
REFUSED = 7
MIB = 1_048_576


async def ask(
    channel: Http2Channel, content: bytes = b"request", seconds: float = SECONDS, *, waits: bool = False
) -> bytes:
    return await channel.method(METHOD)(content, timeout=seconds, metadata=(), wait_for_ready=waits)


async def code_of(channel: Http2Channel, content: bytes = b"request", seconds: float = SECONDS) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await ask(channel, content, seconds)
    return failed.value.code().name, failed.value.details() or ""


async def echo(peer: Peer) -> None:
    peer.send(HELLO)
    while True:
        peer.answer(*(await peer.call()))


async def leaves_as_it_greets(peer: Peer) -> None:
    peer.send(HELLO + GRACEFUL)
    await peer.find(GOAWAY)


async def test_calls_wait_for_another_connection_when_the_server_drained_theirs_before_it_was_of_use():
    async with connected(leaves_as_it_greets, leaves_as_it_greets, echo) as (channel, server):
        assert await asyncio.gather(*(ask(channel, content) for content in (b"one", b"two"))) == [b"one", b"two"]
        assert server.connections == 3


async def test_a_server_that_leaves_whenever_it_greets_is_no_connection_and_a_call_learns_it_soon():
    scripts = [leaves_as_it_greets] * (1 + MAX_LOST_AGAIN)
    async with connected(*scripts, echo) as (channel, server):
        patient = asyncio.ensure_future(ask(channel, b"patient", waits=True))

        assert await code_of(channel) == (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: the server takes no more calls on the connection",
        )
        assert await patient == b"patient"
        assert server.connections == len(scripts) + 1


async def test_a_connection_that_drained_is_not_kept():
    async def drains(peer: Peer) -> None:
        peer.send(HELLO)
        stream, content = await peer.call()
        peer.send(GRACEFUL)
        peer.answer(stream, content)
        await peer.find(GOAWAY)

    async with connected(drains) as (channel, server):
        for _ in range(3):
            await ask(channel)

        assert server.connections == 3
        async with asyncio.timeout(SECONDS):
            while any(isinstance(one, Http2Connection) for one in gc.get_objects()):
                gc.collect()
                await asyncio.sleep(0.01)


async def test_a_server_that_answers_late_keeps_its_connection():
    calls = 600
    has_all = asyncio.Event()

    async def is_late(peer: Peer) -> None:
        peer.send(HELLO)
        late = [(await peer.call())[0] for _ in range(calls)]
        has_all.set()
        for _ in late:
            await peer.find(RST_STREAM)
        for stream in late:
            peer.answer(stream, b"too late")
        peer.answer(*(await peer.call()))

    async with connected(is_late) as (channel, server):
        late = [channel.method(METHOD)(b"x", timeout=SECONDS, metadata=()) for _ in range(calls)]
        await has_all.wait()
        for call in late:
            call.cancel()

        assert await ask(channel, b"in time") == b"in time"
        assert server.connections == 1


async def test_a_server_that_says_that_it_sends_no_more_is_gone_whether_or_not_it_reads():
    async def stops(peer: Peer) -> None:
        peer.send(
            frame(SETTINGS, payload=setting(INITIAL_WINDOW, 2**31 - 1)),
            frame(WINDOW_UPDATE, 0, 0, number(2**30)),
        )
        await peer.find(DATA)
        peer.end()
        await asyncio.sleep(SECONDS)

    async with connected(stops, echo) as (channel, _):
        assert await code_of(channel, bytes(16 * MIB)) == ("UNAVAILABLE", "the connection was closed")
        assert await ask(channel) == b"request"


async def test_a_refusal_by_a_channel_that_drains_is_to_be_retried_elsewhere():
    has_come = asyncio.Event()
    may_refuse = asyncio.Event()

    async def refuses(peer: Peer) -> None:
        peer.send(HELLO)
        stream, _ = await peer.call()
        has_come.set()
        await may_refuse.wait()
        peer.send(frame(RST_STREAM, 0, stream, number(REFUSED)))
        await peer.find(GOAWAY)

    async with connected(refuses) as (channel, _):
        call = asyncio.ensure_future(code_of(channel))
        await has_come.wait()
        closing = asyncio.ensure_future(channel.close(SECONDS))
        await asyncio.sleep(0)
        may_refuse.set()

        assert (await call)[0] == "UNAVAILABLE"
        await closing


async def test_a_grace_that_is_cut_short_ends_the_calls_that_it_was_for():
    has_come = asyncio.Event()

    async def is_silent(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.call()
        has_come.set()
        await peer.find(GOAWAY)

    async with connected(is_silent) as (channel, _):
        call = channel.method(METHOD)(b"x", timeout=SECONDS, metadata=())
        await has_come.wait()
        closing = asyncio.ensure_future(channel.close(SECONDS))
        await asyncio.sleep(0)
        closing.cancel()

        with pytest.raises(BackendUnavailable):
            await call


async def test_a_call_whose_answer_has_begun_is_not_sent_again_when_the_server_says_that_it_refused_it():
    streams: list[int] = []

    async def begins(peer: Peer) -> None:
        peer.send(HELLO)
        while True:
            stream, _ = await peer.call()
            streams.append(stream)
            peer.send(peer.head(stream), frame(RST_STREAM, 0, stream, number(REFUSED)))

    async with connected(begins) as (channel, _):
        assert (await code_of(channel))[0] == "UNAVAILABLE"

    assert streams == [1]


async def test_a_short_request_does_not_wait_for_all_of_a_long_one():
    async def takes_slowly(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 2**31 - 1)))
        taken = 0
        while taken < 65_535:
            taken += len((await peer.find(DATA)).payload)
        await peer.find(HEADERS)  # of the short one, for which the long one has left no window
        for _ in range(2):
            peer.send(frame(WINDOW_UPDATE, 0, 0, number(1_000)))
            one = await peer.find(DATA)
            if one.flags & END_STREAM:
                peer.answer(one.stream, one.payload[5:])
                await peer.find(GOAWAY)
                return

    async with connected(takes_slowly) as (channel, _):
        long = asyncio.ensure_future(code_of(channel, bytes(MIB)))
        await asyncio.sleep(0)

        assert await ask(channel, b"short", 5.0) == b"short"
        await channel.close()
        long.cancel()


async def test_what_new_settings_let_go_is_sent_behind_their_acknowledgement():
    """A server that counts by the old ones until then would reset the stream, as gRPC's library does."""
    seen: list[int] = []

    async def gives_more(peer: Peer) -> None:
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 10)))
        await peer.find(DATA)
        peer.send(frame(SETTINGS, payload=setting(INITIAL_WINDOW, 1_000)))
        seen.extend([(await peer.receive()).kind, (await peer.receive()).kind])
        peer.answer(1, b"whole")

    async with connected(gives_more) as (channel, _):
        assert await ask(channel, bytes(100)) == b"whole"

    assert seen == [SETTINGS, DATA]


async def test_a_server_that_is_slow_to_read_a_long_request_may_ask_for_signs_of_life():
    async def asks(peer: Peer) -> None:
        peer.send(
            frame(SETTINGS, payload=setting(INITIAL_WINDOW, 2**31 - 1) + setting(MAX_FRAME, 2**24 - 1)),
            frame(WINDOW_UPDATE, 0, 0, number(2**30)),
        )
        await peer.find(HEADERS)
        peer.send(frame(PING, payload=bytes(8)))
        stream, content = await peer.call()
        peer.answer(stream, b"%d" % len(content))

    content = bytes(16 * MIB - 6)
    async with connected(asks) as (channel, _):
        assert await ask(channel, content) == b"%d" % len(content)
