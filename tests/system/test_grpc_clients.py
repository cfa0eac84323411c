"""Our own client of model servers over gRPC beside gRPC's library: the same calls, the same outcomes (ADR 126)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from random import Random
from typing import NamedTuple

import grpc
import grpc.aio
import pytest
from contract.servers import FrameServer, end_ok_with, message_of, reset_with

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES, Channel, OpenChannel, open_grpcio
from understudy.adapters.model_servers.http2.channel import open_http2
from understudy.adapters.model_servers.status import CALL_FAILED
from understudy.core.upstream.endpoint_rules import parse_target

METHOD = "/test.Echo/Echo"
CLIENTS: dict[str, OpenChannel] = {"asyncio": open_http2, "grpcio": open_grpcio}
CALLS = 3_000
AT_ONCE = 8
LONG_SECONDS = 120.0
WIRE_SECONDS = 3.0
MESSAGES = ["", "no such model", "50 % of Zürich, naïve", "a\r\nb\tc", "日本語 %41%", "x" * 3_000]
MIB = 1_048_576


class Asked(NamedTuple):
    """One call, and what the server is to do with it."""

    size: int
    answer_size: int
    code: int
    message: str
    hangs: bool
    field: str


Outcome = tuple[str, str, bytes]
"""The status, its details, and the answer's digest."""


def drawn(chance: Random) -> Asked:
    """Return a call: most are short and good; some are long, refused, or late."""
    longest = chance.choices([2_000, 40_000, 300_000, 8 * MIB], [60, 25, 12, 3])[0]
    edges = [0, 1, 16_379, 16_384, 65_530, 65_535, MAX_ANSWER_BYTES, MAX_ANSWER_BYTES + 1]
    return Asked(
        size=chance.choice(edges) if chance.random() < 0.05 else chance.randrange(longest),
        answer_size=chance.choice(edges) if chance.random() < 0.05 else chance.randrange(longest),
        code=chance.choice(list(range(1, 17))) if chance.random() < 0.2 else 0,
        message=chance.choice(MESSAGES),
        hangs=chance.random() < 0.02,
        field="".join(chance.choices("abc =;,~!", k=chance.randrange(1, 200))).strip() or "x",
    )


class EchoServer(grpc.GenericRpcHandler):
    """Answers as the request's header says, and puts the request's digest before the answer's bytes."""

    def service(self, _details: object) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        fields = dict(context.invocation_metadata() or ())
        size, code, hangs = (int(number) for number in str(fields["asked"]).split())
        if hangs:
            await asyncio.sleep(3_600)
        if code:
            by_number = {one.value[0]: one for one in grpc.StatusCode}
            await context.abort(by_number[code], bytes.fromhex(str(fields["message"])).decode())
        seen = blake2b(request + str(fields["field"]).encode(), digest_size=16).digest()
        return (seen * (size // 16 + 1))[:size]


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 16 * MIB),))
    server.add_generic_rpc_handlers((EchoServer(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def opened(client: str, port: int) -> Channel:
    target = parse_target(f"127.0.0.1:{port}")
    assert target.literal is not None
    return CLIENTS[client](f"127.0.0.1:{port}", target, [target.literal], PLAIN_WIRE)


async def outcome_of(channel: Channel, asked: Asked) -> Outcome:
    """Return how a call ended."""
    metadata = (
        ("asked", f"{asked.answer_size} {asked.code} {int(asked.hangs)}"),
        ("message", asked.message.encode().hex()),
        ("field", asked.field),
    )
    request = Random(asked.size).randbytes(asked.size)
    try:
        answer = await channel.method(METHOD)(
            request, timeout=0.05 if asked.hangs else LONG_SECONDS, metadata=metadata, wait_for_ready=True
        )
    except CALL_FAILED as error:
        assert isinstance(error, grpc.aio.AioRpcError)
        return error.code().name, error.details() or "", b""
    return "OK", "", blake2b(answer).digest()


async def test_thousands_of_calls_end_alike_by_both_clients():
    chance = Random("two clients")
    asked = [drawn(chance) for _ in range(CALLS)]
    async with echoing() as port:
        channels = {client: opened(client, port) for client in CLIENTS}
        places = asyncio.Semaphore(AT_ONCE)

        async def both(one: Asked) -> dict[str, Outcome]:
            async with places:
                return {client: await outcome_of(channel, one) for client, channel in channels.items()}

        ended = await asyncio.gather(*(both(one) for one in asked))
        for channel in channels.values():
            await channel.close()

    unlike = [(one, found) for one, found in zip(asked, ended, strict=True) if found["asyncio"] != found["grpcio"]]
    assert unlike == []
    assert {found["asyncio"][0] for found in ended} == {code.name for code in grpc.StatusCode}


ANSWER = message_of(b"answer")
WIRES: dict[str, Callable[[int], bytes]] = {
    "an answer": end_ok_with(ANSWER),
    "no message": end_ok_with(None),
    "an empty message": end_ok_with(message_of(b"")),
    "no data": end_ok_with(b""),
    "half a message": end_ok_with(ANSWER[:-1]),
    "half a length": end_ok_with(ANSWER[:3]),
    **{f"reset {code}": reset_with(code) for code in range(15)},
}

TOLD_APART: dict[str, tuple[Callable[[int], bytes], str, str]] = {
    "two messages": (end_ok_with(ANSWER + ANSWER), "INTERNAL", "DEADLINE_EXCEEDED"),
    "a message and a half": (end_ok_with(ANSWER + ANSWER[:-1]), "INTERNAL", "DEADLINE_EXCEEDED"),
    "a compressed message": (end_ok_with(b"\1" + ANSWER[1:]), "UNIMPLEMENTED", "OK"),
    "the first byte of a message too long": (
        end_ok_with(b"\0" + (MAX_ANSWER_BYTES + 1).to_bytes(4) + b"x"),
        "RESOURCE_EXHAUSTED",
        "OK",
    ),
}
"""What no server of gRPC sends, with what each client makes of it: our own says at once what is wrong."""


async def wire_outcome(client: str, frames: Callable[[int], bytes]) -> tuple[str, bytes | None]:
    """Return how a call ends that is answered with these frames."""
    async with FrameServer(frames) as server:
        channel = opened(client, server.port)
        try:
            return "OK", await channel.method(METHOD)(b"request", timeout=WIRE_SECONDS, metadata=())
        except CALL_FAILED as error:
            assert isinstance(error, grpc.aio.AioRpcError)
            return error.code().name, None
        finally:
            await channel.close()


@pytest.mark.parametrize("wire", WIRES)
async def test_what_a_server_sends_means_the_same_to_both_clients(wire: str):
    assert await wire_outcome("asyncio", WIRES[wire]) == await wire_outcome("grpcio", WIRES[wire])


@pytest.mark.parametrize(("frames", "ours", "theirs"), TOLD_APART.values(), ids=TOLD_APART)
async def test_what_the_clients_take_differently_is_known(frames: Callable[[int], bytes], ours: str, theirs: str):
    assert (await wire_outcome("asyncio", frames))[0] == ours
    assert (await wire_outcome("grpcio", frames))[0] == theirs
