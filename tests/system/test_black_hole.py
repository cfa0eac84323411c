"""A model server's machine that takes no connection and refuses none, as one behind a broken network."""

import asyncio
import socket
from contextlib import ExitStack, suppress

import grpc.aio
import pytest
from loopback.http2_server import SETTINGS, Peer, RawServer, frame

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.adapters.model_servers.http2.dialling import ADDRESS_SECONDS, MAX_CONNECT_SECONDS
from understudy.core.upstream.endpoint_rules import parse_target

METHOD = "/test.Echo/Echo"
SECONDS = 60.0
FULL = 8
"""Connections that nobody accepts, far beyond a backlog of none: the kernel drops what comes behind them."""


async def echo(peer: Peer) -> None:
    peer.send(frame(SETTINGS))
    while True:
        peer.answer(*(await peer.call()))


async def test_an_address_that_answers_nothing_is_given_up_in_time_and_found_when_it_is_back():
    loop = asyncio.get_running_loop()
    with ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(FULL):
            filling = opened.enter_context(socket.socket())
            filling.setblocking(False)
            with suppress(BlockingIOError):
                filling.connect(listening.getsockname())
        target = parse_target(f"127.0.0.1:{listening.getsockname()[1]}")
        assert target.literal is not None
        channel = open_http2("m", target, [target.literal], PLAIN_WIRE)
        patient = channel.method(METHOD)(b"patient", timeout=SECONDS, metadata=(), wait_for_ready=True)
        began = loop.time()

        with pytest.raises(grpc.aio.AioRpcError, match="no connection in time"):
            await channel.method(METHOD)(b"hasty", timeout=SECONDS, metadata=())
        assert ADDRESS_SECONDS - 0.1 < loop.time() - began < MAX_CONNECT_SECONDS

        served = RawServer([echo])
        async with await asyncio.start_server(served.serve, sock=listening):
            assert await patient == b"patient"
            await channel.close()
            await served.stop()
