"""How our own client over HTTP/2 comes to a connection: names with two addresses, servers that are asked too often."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from loopback.certificates import Authority
from loopback.http2_server import GOAWAY, PING, SETTINGS, Peer, Script, frame, number, scripted
from worlds.http2 import connected

from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Tls, Wire
from understudy.adapters.model_servers.http2.channel import Http2Channel, open_http2
from understudy.adapters.model_servers.http2.connection import Http2Connection, Owner
from understudy.adapters.model_servers.http2.dialling import Dialler
from understudy.adapters.model_servers.http2.keepalive import Keepalive
from understudy.core.upstream.endpoint_rules import parse_target
from understudy.errors import BackendUnavailable

METHOD = "/test.Echo/Echo"
SECONDS = 20.0
HELLO = frame(SETTINGS)
ENHANCE_YOUR_CALM = 11
PING_SECONDS = 0.1
MANY_BYTES = 65_536


async def ask(channel: Http2Channel, content: bytes = b"request") -> bytes:
    return await channel.method(METHOD)(content, timeout=SECONDS, metadata=())


async def echo(peer: Peer) -> None:
    peer.send(HELLO)
    while True:
        peer.answer(*(await peer.call()))


@asynccontextmanager
async def with_two_addresses(*scripts: Script) -> AsyncIterator[Http2Channel]:
    """A name with two addresses; the first connection is to the one, the second to the other."""
    async with scripted(*scripts) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = open_http2(f"127.0.0.1:{server.port}", target, [target.literal, target.literal], PLAIN_WIRE)
        try:
            yield channel
        finally:
            await channel.close()


async def test_an_address_that_takes_connections_and_never_greets_is_overtaken_by_the_next_and_left():
    left = asyncio.Event()

    async def is_silent(peer: Peer) -> None:
        await peer.find(GOAWAY)
        left.set()

    async with with_two_addresses(is_silent, echo) as channel:
        assert await ask(channel) == b"request"
        await asyncio.wait_for(left.wait(), SECONDS)


async def test_an_address_that_greets_late_is_used_though_the_next_one_has_been_tried():
    next_is_tried = asyncio.Event()

    async def is_late(peer: Peer) -> None:
        await next_is_tried.wait()
        await echo(peer)

    async def is_silent(peer: Peer) -> None:
        next_is_tried.set()
        await peer.find(GOAWAY)

    async with with_two_addresses(is_late, is_silent) as channel:
        assert await ask(channel) == b"request"


async def test_an_address_that_refuses_costs_no_time_and_the_next_one_is_used():
    async def refuses(peer: Peer) -> None:
        peer.send(frame(GOAWAY, payload=number(0) + number(0)))

    async with with_two_addresses(refuses, echo) as channel:
        assert await ask(channel) == b"request"


class BreaksOnce(Dialler):
    """Its first attempt ends as none is known to."""

    has_broken = False

    async def dial(self, owner: Owner) -> Http2Connection:
        if not self.has_broken:
            self.has_broken = True
            raise RuntimeError("as none is known to")
        return await super().dial(owner)


async def test_an_attempt_that_breaks_in_an_unknown_way_is_followed_by_another():
    async with scripted(echo) as server:
        target = parse_target(f"127.0.0.1:{server.port}")
        assert target.literal is not None
        channel = Http2Channel("m", BreaksOnce(target, [target.literal], None))
        send = channel.method(METHOD)
        patient = send(b"patient", timeout=SECONDS, metadata=(), wait_for_ready=True)

        with pytest.raises(grpc.aio.AioRpcError, match="cannot be made"):
            await send(b"hasty", timeout=SECONDS, metadata=())
        assert await patient == b"patient"
        await channel.close()


@pytest.mark.parametrize("is_secure", [False, True])
async def test_a_channel_that_closes_while_it_connects_leaves_no_connection(tmp_path: Path, is_secure: bool):  # noqa: FBT001
    connected_to, left = asyncio.Queue[None](), asyncio.Queue[None]()

    async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected_to.put_nowait(None)
        while await reader.read(MANY_BYTES):
            pass
        left.put_nowait(None)
        writer.close()

    tls = Tls(Authority(tmp_path).ca.read_bytes()) if is_secure else None
    async with await asyncio.start_server(is_silent, "127.0.0.1", 0) as listening:
        target = parse_target(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        assert target.literal is not None
        channel = open_http2("m", target, [target.literal] * 2, Wire(tls=tls))
        call = channel.method(METHOD)(b"request", timeout=SECONDS, metadata=())
        async with asyncio.timeout(SECONDS):
            for _ in range(2):
                await connected_to.get()
            await channel.close()
            for _ in range(2):
                await left.get()

    with pytest.raises(BackendUnavailable):
        await call


async def test_a_server_that_says_it_is_pinged_too_often_is_pinged_half_as_often():
    took = asyncio.get_running_loop().create_future()

    async def complains(peer: Peer) -> None:
        peer.send(HELLO)
        await peer.find(PING)
        peer.send(frame(GOAWAY, payload=number(0) + number(ENHANCE_YOUR_CALM) + b"too_many_pings"))

    async def waits_for_a_ping(peer: Peer) -> None:
        began = asyncio.get_running_loop().time()
        peer.send(HELLO)
        await peer.find(PING)
        took.set_result(asyncio.get_running_loop().time() - began)

    async with connected(complains, waits_for_a_ping) as (channel, _):
        channel.keepalive = Keepalive(
            asyncio.get_running_loop(), PING_SECONDS, SECONDS
        )  # before its connection is made

        with pytest.raises(grpc.aio.AioRpcError):
            await ask(channel)

    assert took.result() >= 1.9 * PING_SECONDS
