"""A TCP fault proxy: forwards bytes to a server, or does to them what networks and dying servers do.

One process holds any number of doors. ``python -m rigs.faults.tcp`` takes commands as lines of JSON on standard input
and answers each with one; it ends when its input does. :mod:`rigs.faults.links` speaks to it.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

CHUNK_BYTES = 65_536
MAX_CHUNKS = 64
"""Read and not yet forwarded, in each direction of a connection; more wait in the kernel."""
CONNECT_SECONDS = 5.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_RATE_STEP_SECONDS = 0.01


class Mode(StrEnum):
    """What becomes of connections."""

    PASS = "pass"
    REFUSE = "refuse"
    """No process listens, and open connections are reset: a process that was killed."""
    BLACKHOLE = "blackhole"
    """Connections stay open and new ones are taken, but nothing moves; after it what was held back moves on."""
    RESET = "reset"
    """A process listens, and each connection is reset."""


@dataclass(frozen=True)
class Behaviour:
    """What a door does until it is told otherwise."""

    mode: Mode = Mode.PASS
    latency_seconds: float = 0.0
    """Added each way."""
    bytes_per_second: float | None = None
    """Each way of each connection."""
    cut_after_bytes: int | None = None
    """Of the answers on each connection, counted since it was opened: the connection is reset there."""
    corrupt_every_bytes: int | None = None
    """Each so-manyth byte of the answers has all its bits turned."""


HEALTHY = Behaviour()


class Door:
    """A listening port before one server."""

    def __init__(self, upstream_port: int) -> None:
        self.port = 0
        self._upstream_port = upstream_port
        self._behaviour = HEALTHY
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._moves = asyncio.Event()
        self._moves.set()

    @property
    def connections(self) -> int:
        """Connections of clients that are open now."""
        return len(self._connections)

    async def open(self) -> None:
        """Listen; the port stays the same from the first time on."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK_BYTES)
            self.port = self._server.sockets[0].getsockname()[1]

    async def behave(self, behaviour: Behaviour) -> None:
        """Change what the door does, for open connections too."""
        self._behaviour = behaviour
        if behaviour.mode is Mode.BLACKHOLE:
            self._moves.clear()
        else:
            self._moves.set()
        if behaviour.mode is Mode.REFUSE:
            self._close_listener()
        else:
            await self.open()
        if behaviour.mode in (Mode.REFUSE, Mode.RESET):
            self._reset_all()

    def move(self, upstream_port: int, *, resets: bool = True) -> None:
        """Forward to another server from now on; connections to the one before are reset, or go on."""
        self._upstream_port = upstream_port
        if resets:
            self._reset_all()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        self._close_listener()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reset_all(self) -> None:
        for writer in self._writers:
            _reset(writer)
        for task in self._connections:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._behaviour.mode in (Mode.REFUSE, Mode.RESET):
            _reset(writer)
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._writers.add(writer)
        try:
            await self._forward(reader, writer)
        except (asyncio.CancelledError, OSError, TimeoutError):
            pass  # cancelled by this door alone, when it resets or closes what is open
        finally:
            self._connections.discard(task)
            self._writers.discard(writer)
            _reset(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._moves.wait()
        async with asyncio.timeout(CONNECT_SECONDS):
            upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port, limit=CHUNK_BYTES)
        try:
            to_server = asyncio.ensure_future(self._pump(reader, upstream[1], is_answer=False))
            to_client = asyncio.ensure_future(self._pump(upstream[0], writer, is_answer=True))
            pumps = (to_server, to_client)
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            upstream[1].close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        """Move bytes one way until the end, which is passed on; raises when the connection is to be reset."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_CHUNKS)

        async def read() -> None:
            while True:
                chunk = await reader.read(CHUNK_BYTES)
                await waiting.put((time.monotonic(), chunk))
                if not chunk:
                    return

        reading = asyncio.ensure_future(read())
        moved = 0
        try:
            while True:
                if reading.done() and waiting.empty():
                    reading.result()
                    return
                arrived, chunk = await _first(waiting, reading)
                await asyncio.sleep(arrived + self._behaviour.latency_seconds - time.monotonic())
                await self._moves.wait()
                if not chunk:
                    with suppress(OSError):
                        writer.write_eof()
                    return
                if is_answer:
                    chunk = self._spoiled(chunk, moved)
                moved += len(chunk)
                await self._write(writer, chunk)
                if is_answer and self._behaviour.cut_after_bytes is not None:
                    _raise_at(moved, self._behaviour.cut_after_bytes)
        finally:
            reading.cancel()

    async def _write(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        rate = self._behaviour.bytes_per_second
        if rate is None:
            writer.write(chunk)
            await writer.drain()
            return
        step = max(1, int(rate * _RATE_STEP_SECONDS))
        for start in range(0, len(chunk), step):
            piece = chunk[start : start + step]
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(len(piece) / rate)

    def _spoiled(self, chunk: bytes, moved: int) -> bytes:
        cut, every = self._behaviour.cut_after_bytes, self._behaviour.corrupt_every_bytes
        if cut is not None:
            chunk = chunk[: max(0, cut - moved)]
        if every is None:
            return chunk
        turned = bytearray(chunk)
        for place in range(-(moved + 1) % every, len(turned), every):
            turned[place] ^= 0xFF
        return bytes(turned)


async def _first(waiting: "asyncio.Queue[tuple[float, bytes]]", reading: "asyncio.Future[None]") -> tuple[float, bytes]:
    """Return the next chunk; raises what ended the reading when there is none."""
    getting = asyncio.ensure_future(waiting.get())
    try:
        await asyncio.wait((getting, reading), return_when=asyncio.FIRST_COMPLETED)
        if not getting.done() and waiting.empty():
            reading.result()
        return await getting
    finally:
        getting.cancel()


def _raise_at(moved: int, limit: int) -> None:
    if moved >= limit:
        raise ConnectionResetError("cut")


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST."""
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None and not writer.transport.is_closing():
        with suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


def command_for(port: int, behaviour: Behaviour) -> dict[str, Any]:
    """Return the command that makes the door at a port behave so."""
    return {"do": "behave", "port": port, **asdict(behaviour)}


async def _obey(doors: dict[int, Door], asked: dict[str, Any]) -> dict[str, Any]:
    kind = asked.pop("do")
    if kind == "open":
        door = Door(asked["upstream"])
        await door.open()
        doors[door.port] = door
        return {"port": door.port}
    door = doors[asked.pop("port")]
    if kind == "behave":
        await door.behave(Behaviour(**{**asked, "mode": Mode(asked["mode"])}))
    elif kind == "move":
        door.move(asked["upstream"], resets=asked["resets"])
    return {"connections": door.connections}


async def serve(lines: asyncio.StreamReader, answer: Callable[[dict[str, Any]], None]) -> None:
    """Obey commands until there are no more."""
    doors: dict[int, Door] = {}
    try:
        while line := await lines.readline():
            answer(await _obey(doors, json.loads(line)))
    finally:
        for door in doors.values():
            await door.close()


async def _main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await serve(reader, lambda document: print(json.dumps(document), flush=True))


if __name__ == "__main__":
    asyncio.run(_main())
