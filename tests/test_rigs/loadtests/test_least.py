"""The least client and the least server of gRPC: each against the other, and against grpc itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from loadtests.least_http2 import ACK, PING, SETTINGS, Frame, Frames, frame, reply
from loadtests.least_stub import serve_least
from loadtests.least_unary import METHOD, LeastUnary
from understudy.adapters.embedded.loopback_ports import free_port


@asynccontextmanager
async def a_server() -> AsyncIterator[int]:
    port, stopped = free_port(), asyncio.Event()
    answers = {b"ModelReady": lambda _request: b"ready"}
    serving = asyncio.create_task(serve_least(port, answers, lambda request: request[::-1], stopped))
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0)
        else:
            writer.close()
            break
    try:
        yield port
    finally:
        stopped.set()
        await serving


async def test_grpc_calls_the_least_server_and_finds_each_method_also_with_large_requests():
    large = bytes(range(256)) * 1_000
    async with a_server() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        ready: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            METHOD.replace("ModelInfer", "ModelReady")
        )

        answered = [await infer(b"abc", timeout=5), await ready(b"?", timeout=5), await infer(large, timeout=5)]

    assert answered == [b"cba", b"ready", large[::-1]]


async def test_the_least_client_has_each_of_its_calls_answered():
    async with a_server() as port:
        transport, client = await asyncio.get_running_loop().create_connection(LeastUnary, "127.0.0.1", port)

        answered = await asyncio.gather(*(client.call(b"%03d" % number) for number in range(200)))
        transport.close()

    assert answered == [b"%03d" % number for number in (int(f"{one:03d}"[::-1]) for one in range(200))]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_frames_are_found_however_their_bytes_come(size):
    sent = [Frame(0, 1, 3, b"x" * 300), Frame(6, 0, 0, b"12345678"), Frame(1, 4, 5, b"")]
    data = b"hello" + b"".join(frame(*one) for one in sent)
    frames = Frames(skip=5)

    found = [one for start in range(0, len(data), size) for one in frames.whole(data[start : start + size])]

    assert found == sent


def test_settings_and_pings_are_answered_once():
    assert reply(Frame(PING, 0, 0, b"12345678")) == frame(PING, ACK, 0, b"12345678")
    assert reply(Frame(SETTINGS, 0, 0, b"")) == frame(SETTINGS, ACK, 0, b"")
    assert reply(Frame(SETTINGS, ACK, 0, b"")) == b""
