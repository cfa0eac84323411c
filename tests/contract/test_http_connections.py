"""Connections over HTTP: an answer is its own call's, places are given back, an address that takes calls is found."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from threading import Thread, current_thread

import pytest

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.model_servers.addresses import PLAIN_WIRE, Tls, Wire
from understudy.adapters.model_servers.channels import Call
from understudy.adapters.model_servers.http.channel import HttpChannel, open_http
from understudy.adapters.model_servers.http.connection import HttpConnection
from understudy.adapters.model_servers.http.oip import OipHttpBackend
from understudy.adapters.model_servers.http.pool import MAX_CONNECTIONS, MAX_IDLE_SECONDS, ConnectionPool
from understudy.core.schema.tensors import Block
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.errors import BackendUnavailable

from .http_server import reply, running_http
from .test_model_backend import LOAD_SECONDS, NUMBERS, a_version

HERE = ip_address("127.0.0.1")
ELSEWHERE = ip_address("127.0.0.2")
"""Loopback, too, where nothing listens."""


@asynccontextmanager
async def channel_to(port: int, addresses: Sequence[Address] = (HERE,)) -> AsyncIterator[HttpChannel]:
    channel = open_http(f"localhost:{port}", Target("localhost", port), addresses, PLAIN_WIRE)
    assert isinstance(channel, HttpChannel)
    try:
        yield channel
    finally:
        await channel.close()


def asked(channel: HttpChannel) -> Call:
    return channel.method("POST /score")(b"{}", timeout=LOAD_SECONDS, metadata=())


async def answer_to(call: Call) -> bytes:
    return await call


async def test_calls_at_once_find_the_one_address_of_two_that_takes_them():
    async with running_http() as (server,), channel_to(server.port, (ELSEWHERE, HERE)) as channel:
        server.raw = reply(b"7")

        assert await asyncio.gather(*(asked(channel) for _ in range(9))) == [b"7"] * 9


async def test_what_came_unasked_before_a_call_is_not_its_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LOAD_SECONDS)
        async with channel_to(listener.getsockname()[1]) as channel:
            first = asyncio.ensure_future(answer_to(asked(channel)))
            peer, _ = await asyncio.to_thread(listener.accept)
            await asyncio.to_thread(peer.recv, 65_536)
            peer.sendall(reply(b"1"))
            assert await first == b"1"
            peer.sendall(reply(b"1, once more"))

            second = asyncio.ensure_future(answer_to(asked(channel)))
            accepting = asyncio.ensure_future(asyncio.to_thread(listener.accept))
            await asyncio.wait((second, accepting), return_when=asyncio.FIRST_COMPLETED)
            if second.done():
                pytest.fail(f"the second call has the answer {second.result()!r}")
            other, _ = accepting.result()
            await asyncio.to_thread(other.recv, 65_536)
            other.sendall(reply(b"2"))

            assert await second == b"2"
            peer.close()
            other.close()


async def test_calls_that_wait_for_a_connection_are_answered_though_the_server_ends_each_after_one_answer():
    calls = 2 * MAX_CONNECTIONS
    async with running_http() as (server,), channel_to(server.port) as channel:
        server.raw, server.closes = reply(b"7"), True

        ends = await asyncio.gather(*(asked(channel) for _ in range(calls)), return_exceptions=True)

        assert ends == [b"7"] * calls


class CancellingPool(ConnectionPool):
    """Has a call cancelled in the moment in which its connection is made."""

    call: Call
    cancelled: bool | None = None

    async def dial(self) -> HttpConnection:
        connection = await super().dial()
        asyncio.get_running_loop().call_soon(self._cancel)
        return connection

    def _cancel(self) -> None:
        self.cancelled = self.call.cancel()


async def test_a_call_that_is_cancelled_between_two_of_its_steps_takes_none_of_the_next():
    async with running_http() as (server,):
        pool = CancellingPool(Target("localhost", server.port), (HERE,), None)
        channel = HttpChannel(server.endpoint, pool)
        pool.call = asked(channel)

        with pytest.raises(asyncio.CancelledError):
            await pool.call
        await channel.close()

    assert pool.cancelled is True


async def test_a_thousand_calls_that_are_cancelled_leave_no_place_taken():
    async with running_http() as (server,), channel_to(server.port) as channel:
        server.raw = reply(b"7")
        for turns in range(1_000 // 50):
            calls = [asyncio.ensure_future(answer_to(asked(channel))) for _ in range(50)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

        answers = await asyncio.gather(*(asked(channel) for _ in range(2 * MAX_CONNECTIONS)))
        assert set(answers) == {b"7"}


async def test_a_probe_is_answered_while_all_connections_have_calls_that_hang():
    async with running_http() as (server,), channel_to(server.port) as channel:
        server.behaviour.delay_seconds = LOAD_SECONDS
        calls = [asyncio.ensure_future(answer_to(asked(channel))) for _ in range(MAX_CONNECTIONS + 1)]

        answer = await channel.method("GET /ready")(b"", timeout=LOAD_SECONDS / 2, metadata=())

        assert answer.startswith(b"200")
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_connection_that_nothing_used_for_long_is_not_used_again():
    clock = [0.0]
    async with running_http() as (server,):
        server.raw = reply(b"7")
        pool = ConnectionPool(Target("localhost", server.port), (HERE,), None, lambda: clock[0])
        channel = HttpChannel(server.endpoint, pool)
        for seconds in (0, MAX_IDLE_SECONDS - 1, MAX_IDLE_SECONDS):
            clock[0] += seconds
            await asked(channel)
        await channel.close()

    assert server.connections == 2


def test_authorities_without_a_whole_certificate_are_not_taken_for_the_public_ones():
    with pytest.raises(BackendUnavailable, match=r"backend\.tls names cannot be read"):
        open_http("a:1", Target("a", 1), (HERE,), Wire(tls=Tls(b"-----BEGIN CERTIFICATE-----\nMIIB")))


class Recording(OipHttpBackend):
    """Knows in which thread requests were encoded."""

    thread: Thread | None = None

    def _encode(self, block: Block) -> bytes:
        self.thread = current_thread()
        return super()._encode(block)


async def test_rows_whose_json_takes_long_to_write_are_encoded_in_a_thread():
    row = (bytes(4 * 3),)
    for rows, is_here in (1, True), (20_000, False):
        backend = Recording(a_version(f"127.0.0.1:{free_port()}", adapter="oip-http", inputs=NUMBERS))
        with pytest.raises(BackendUnavailable):
            await backend.infer([row] * rows, LOAD_SECONDS)
        await backend.close()

        assert (backend.thread is current_thread()) is is_here
