"""Many calls that hold something of the gRPC port at a time: what one caller begins costs others none of theirs."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from threading import Event, Thread

import pytest
import uvloop
from loopback.http2_server import ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame
from worlds.grpc import KEY, start, up
from worlds.http2_port import block_of, echo_port, fields_of, head, message_of, raw_caller

from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.entrypoints.proxy.rpc.port import MAX_CALLS

__all__ = ["start", "up"]
CALLS = 800
TURN_SECONDS = 0.1
"""Of the processor, of one turn of the event loop."""
CHECK_BLOCK, WATCH_BLOCK = (block_of(fields_of(f"/grpc.health.v1.Health/{name}")) for name in ("Check", "Watch"))
READY = "/inference.GRPCInferenceService/ModelReady"


async def test_calls_without_a_message_take_no_place_of_other_callers(up):
    _, client = await up(auth=True)
    asked = pb.ModelReadyRequest(name="visits")
    async with raw_caller(client.port) as caller:
        caller.send(*(frame(HEADERS, END_HEADERS, 2 * n + 1, CHECK_BLOCK) for n in range(MAX_CALLS)))
        refusing = asyncio.create_task(caller.find(1))
        found = []
        while not refusing.done():  # until the first of them has waited for a second
            found.append((await client.ask(READY, asked, pb.ModelReadyResponse, KEY)).ready)
        await refusing

    assert len(found) > 1
    assert all(found)


async def test_of_too_many_calls_that_wait_those_of_the_connection_that_has_most_give_way(up):
    _, client = await up(auth=True)
    waits = asyncio.Event()

    async def late() -> AsyncIterator[bytes]:
        await waits.wait()
        yield pb.ModelReadyRequest(name="visits").SerializeToString()

    call = client.channel.stream_unary(READY)(late(), metadata=(KEY,))
    await call.wait_for_connection()
    async with raw_caller(client.port) as one, raw_caller(client.port) as other:
        for n, block in enumerate([CHECK_BLOCK, WATCH_BLOCK] * (MAX_CALLS // 2)):
            one.send(frame(HEADERS, END_HEADERS, 2 * n + 1, block))
            other.send(frame(HEADERS, END_HEADERS, 2 * n + 1, block))
        await asyncio.gather(one.find(1), other.find(1))
        waits.set()

        assert pb.ModelReadyResponse.FromString(await call).ready
        answered = [fields for caller in (one, other) for fields in caller.answers.fields.values()]
        assert any(dict(fields).get("understudy-code") == "E507" for fields in answered)


def of_many_fields(number: int) -> bytes:
    block = block_of(fields_of()) + b"\x00\x01a\x00" * 400
    return frame(HEADERS, END_HEADERS, number, block) + frame(DATA, END_STREAM, number, message_of(b"x"))


def of_many_pieces(number: int) -> bytes:
    message = message_of(bytes(57_000))
    pieces = [frame(DATA, 0, number, message[at : at + 64]) for at in range(0, len(message), 64)]
    return head(number) + b"".join(pieces) + frame(DATA, END_STREAM, number)


def send_without_pause(port: int, call_of: Callable[[int], bytes], over: Event) -> None:
    """Send calls on one connection, as fast as it takes them, and read the answers."""
    calls = b"".join(call_of(number) for number in range(1, 2 * CALLS, 2))
    with socket.create_connection(("127.0.0.1", port)) as sender:
        sender.sendall(PREFACE + frame(SETTINGS) + frame(SETTINGS, ACK))
        reading = Thread(target=read_all, args=(sender,), daemon=True)
        reading.start()
        with suppress(OSError):
            sender.sendall(calls)
        over.wait()
        sender.shutdown(socket.SHUT_RDWR)
        reading.join()


def read_all(sender: socket.socket) -> None:
    with suppress(OSError):
        while sender.recv(1 << 18):
            pass


@pytest.mark.alone
@pytest.mark.parametrize("call_of", [of_many_fields, of_many_pieces])
def test_a_caller_that_sends_without_a_pause_leaves_others_their_turns(call_of):
    async def longest() -> float:
        """Return the longest time between two turns of the event loop, in seconds of its own work."""
        over, found = Event(), 0.0
        async with echo_port() as port:
            sending = asyncio.create_task(asyncio.to_thread(send_without_pause, port.port, call_of, over))
            began = time.monotonic()
            while port.begun < CALLS // 2 and time.monotonic() < began + 20:
                worked = time.thread_time()
                await asyncio.sleep(0)
                found = max(found, time.thread_time() - worked)
            over.set()
            await asyncio.wait([sending])
        return found

    assert uvloop.run(longest()) < TURN_SECONDS
