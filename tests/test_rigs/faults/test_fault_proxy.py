"""The TCP fault proxy does what each of its modes says: the fault matrix rests on it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from rigs.faults.links import Links
from rigs.faults.tcp import HEALTHY, Behaviour, Door, Mode

GIVE_UP_SECONDS = 30.0
LATENCY_SECONDS = 0.25


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await answer_with(bytes, reader, writer)


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await answer_with(bytes.upper, reader, writer)


async def answer_with(change, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(change(chunk))
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


@asynccontextmanager
async def a_server(answer=echo) -> AsyncIterator[int]:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def a_door(port: int) -> AsyncIterator[Door]:
    door = Door(port)
    await door.open()
    try:
        yield door
    finally:
        await door.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, content: bytes) -> bytes:
        self.writer.write(content)
        async with asyncio.timeout(GIVE_UP_SECONDS):
            return await self.reader.readexactly(len(content))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        client.writer.transport.abort()
        with suppress(OSError):
            await client.writer.wait_closed()


async def test_what_passes_is_what_was_sent_in_both_directions_however_much_it_is():
    content = bytes(range(256)) * 4_000
    async with a_server() as port, a_door(port) as door, connected(door.port) as client:
        answer = await client.ask(content)

    assert answer == content


async def test_the_end_of_one_side_is_passed_on_to_the_other():
    async with a_server() as port, a_door(port) as door, connected(door.port) as client:
        answer = await client.ask(b"hello")
        client.writer.write_eof()
        async with asyncio.timeout(GIVE_UP_SECONDS):
            with suppress(ConnectionResetError):  # the server answers the end by dropping the connection
                assert await client.reader.read() == b""

    assert answer == b"hello"


async def test_refusing_resets_what_is_open_and_refuses_what_is_new_until_it_is_over():
    async with a_server() as port, a_door(port) as door, connected(door.port) as before:
        assert await before.ask(b"hello") == b"hello"
        await door.behave(Behaviour(Mode.REFUSE))
        with pytest.raises(ConnectionResetError):
            await before.ask(b"hello")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", door.port)
        await door.behave(HEALTHY)
        async with connected(door.port) as after:
            answer = await after.ask(b"again")

    assert answer == b"again"


async def test_a_blackhole_takes_connections_and_bytes_and_gives_nothing_until_it_is_over():
    async with a_server() as port, a_door(port) as door, connected(door.port) as before:
        assert await before.ask(b"hello") == b"hello"
        await door.behave(Behaviour(Mode.BLACKHOLE))
        async with connected(door.port) as during:
            waiting = [asyncio.create_task(client.ask(b"kept")) for client in (before, during)]
            done, _ = await asyncio.wait(waiting, timeout=0.5)
            await door.behave(HEALTHY)
            answers = await asyncio.gather(*waiting)

    assert done == set()
    assert answers == [b"kept", b"kept"]


async def test_resetting_takes_each_connection_and_resets_it():
    async with a_server() as port, a_door(port) as door:
        await door.behave(Behaviour(Mode.RESET))
        async with connected(door.port) as client:
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                await client.ask(b"hello")


async def test_latency_is_added_each_way_and_not_once_for_each_chunk():
    async with a_server() as port, a_door(port) as door, connected(door.port) as client:
        await client.ask(b"warm")
        await door.behave(Behaviour(latency_seconds=LATENCY_SECONDS))
        began = time.monotonic()
        await client.ask(b"one")
        one = time.monotonic() - began
        began = time.monotonic()
        for _ in range(50):
            client.writer.write(b"x")
            await asyncio.sleep(0.001)
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await client.reader.readexactly(50)
        many = time.monotonic() - began

    assert one >= 2 * LATENCY_SECONDS
    assert many < 50 * 2 * LATENCY_SECONDS


async def test_a_rate_holds():
    content = b"x" * 100_000
    async with a_server() as port, a_door(port) as door, connected(door.port) as client:
        await door.behave(Behaviour(bytes_per_second=200_000))
        began = time.monotonic()
        answer = await client.ask(content)
        seconds = time.monotonic() - began

    assert answer == content
    assert seconds >= len(content) / 200_000


async def test_a_cut_lets_so_many_bytes_of_the_answers_through_and_resets_the_connection():
    async with a_server() as port, a_door(port) as door:
        await door.behave(Behaviour(cut_after_bytes=5))
        async with connected(door.port) as client:
            client.writer.write(b"0123456789")
            async with asyncio.timeout(GIVE_UP_SECONDS):
                received = await client.reader.readexactly(5)
                with pytest.raises(ConnectionResetError):
                    await client.reader.read(1)

    assert received == b"01234"


@pytest.mark.parametrize("every", [1, 3, 7])
async def test_corruption_turns_each_so_manyth_byte_of_the_answers_across_chunks(every):
    async with a_server() as port, a_door(port) as door:
        await door.behave(Behaviour(corrupt_every_bytes=every))
        async with connected(door.port) as client:
            received = [await client.ask(b"\x00" * 10), await client.ask(b"\x00" * 10)]

    assert b"".join(received) == bytes(0xFF if (place + 1) % every == 0 else 0 for place in range(20))


async def test_a_moved_upstream_gets_the_connections_to_come_and_those_before_are_reset():
    async with a_server() as port, a_server(shout) as other, a_door(port) as door, connected(door.port) as before:
        assert await before.ask(b"a") == b"a"
        door.move(other)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await before.ask(b"a")
        async with connected(door.port) as after:
            answer = await after.ask(b"a")

    assert answer == b"A"


async def test_the_process_has_obeyed_each_command_when_it_answers():
    async with a_server() as port:
        with Links() as links:
            link = await asyncio.to_thread(links.to, port)
            async with connected(link.port) as client:
                assert await client.ask(b"hello") == b"hello"
                open_before = await asyncio.to_thread(lambda: link.connections)
                await asyncio.to_thread(link.behave, Behaviour(Mode.REFUSE))
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection("127.0.0.1", link.port)
            await asyncio.to_thread(link.behave)
            async with connected(link.port) as again:
                answer = await again.ask(b"back")

    assert open_before == 1
    assert answer == b"back"
