"""Connections of the gRPC port that are sent elsewhere all the time, under grpcio's own clients: no call is lost."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from loopback.certificates import Authority
from loopback.http2_server import ACK, PING, frame
from worlds.http2_port import ECHO, WAIT, Answers, EchoPort, RawCaller, echo_port, not_reading

from understudy.entrypoints.proxy.rpc.http2.connection import LINGER_SECONDS

CALLERS, CALLS = 8, 150
PAUSE_SECONDS = 0.03


@contextmanager
def sent_elsewhere(port: EchoPort) -> Iterator[set[object]]:
    """Have every connection leave soon after it was made; yield those that did."""
    found: set[object] = set()

    async def send_elsewhere() -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            for arrival in tuple(port.listener.arrivals):
                arrival.leave()
                found.add(arrival)

    leaving = asyncio.create_task(send_elsewhere())
    try:
        yield found
    finally:
        leaving.cancel()


@pytest.mark.parametrize("is_secure", [False, True])
async def test_calls_of_grpcios_asyncio_client_are_all_answered(tmp_path: Path, is_secure):
    made = Authority(tmp_path).sign("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    async with echo_port(tls=context if is_secure else None) as port, asyncio.timeout(60):
        address = f"127.0.0.1:{port.port}"
        trusted = grpc.ssl_channel_credentials((tmp_path / "ca.pem").read_bytes())
        channel = grpc.aio.secure_channel(address, trusted) if is_secure else grpc.aio.insecure_channel(address)

        async def call(number: int) -> None:
            ask: Any = channel.unary_unary(ECHO)
            for turn in range(CALLS):
                message = b"%d-%d" % (number, turn) * (1 + turn * 40)
                assert await ask(message) == message

        with sent_elsewhere(port) as left:
            await asyncio.gather(*(call(number) for number in range(CALLERS)))
        await channel.close()

    assert len(left) > 3


async def test_calls_of_grpcios_blocking_client_are_all_answered():
    async with echo_port() as port, asyncio.timeout(60):

        def call() -> int:
            with grpc.insecure_channel(f"127.0.0.1:{port.port}") as channel:
                ask: Any = channel.unary_unary(ECHO)
                return sum(ask(b"%d" % turn) == b"%d" % turn for turn in range(CALLS))

        with sent_elsewhere(port) as left:
            found = await asyncio.gather(*(asyncio.to_thread(call) for _ in range(4)))

    assert found == [CALLS] * 4
    assert len(left) > 3


async def test_the_end_waits_for_calls_under_way_and_for_no_longer_than_it_may():
    async with echo_port() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        ask: Any = channel.unary_unary(WAIT)
        calls = [asyncio.ensure_future(ask(b"x")) for _ in range(3)]
        async with asyncio.timeout(30):
            while port.begun < len(calls):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
        ending = asyncio.create_task(port.listener.end(20))
        await asyncio.sleep(0)
        port.open.set()

        assert await asyncio.gather(*calls) == [b"x"] * 3
        await asyncio.wait_for(ending, 10)
        assert not port.listener.arrivals


async def test_the_last_answers_are_taken_by_a_caller_who_reads_late():
    async with echo_port() as port, asyncio.timeout(60):
        late, arrival = await not_reading(port)
        ending = asyncio.create_task(port.listener.end(30))
        await asyncio.get_running_loop().sock_sendall(late, frame(PING, ACK, 0, b"leaving."))
        while not arrival.is_over:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
        await asyncio.sleep(LINGER_SECONDS + 0.5)

        answers = await all_of(late)
        await ending

    assert answers.whole == set(range(1, 2 * port.begun, 2))


async def all_of(late: socket.socket) -> Answers:
    """Return what came, to the connection's end."""
    reader, writer = await asyncio.open_connection(sock=late)
    caller = RawCaller(reader, writer)
    await caller.until_end()
    writer.close()
    return caller.answers


async def test_calls_that_take_longer_than_the_end_are_broken_off():
    async with echo_port() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
        ask: Any = channel.unary_unary(WAIT)
        call = asyncio.ensure_future(ask(b"x"))
        async with asyncio.timeout(30):
            while not port.begun:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)

        await port.listener.end(0.1)

        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await call
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
