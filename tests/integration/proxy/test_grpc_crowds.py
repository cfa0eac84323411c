"""Many calls that hold something of the gRPC port at a time: what one caller begins costs others none of theirs."""

import asyncio
from collections.abc import AsyncIterator

from loopback.http2_server import END_HEADERS, HEADERS, frame
from worlds.grpc import KEY, start, up
from worlds.http2_port import block_of, fields_of, raw_caller

from understudy.adapters._proto import understudy_oip_pb2 as pb
from understudy.entrypoints.proxy.rpc.port import MAX_CALLS

__all__ = ["start", "up"]
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
