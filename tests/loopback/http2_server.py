"""A server of HTTP/2 on a raw socket that does what a test says, frame by frame: good, slow, wrong or hostile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from hpack import Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITISED = 0x4, 0x8, 0x20
HEAD = ((":status", "200"), ("content-type", "application/grpc"))
OK = (("grpc-status", "0"),)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def setting(name: int, value: int) -> bytes:
    return name.to_bytes(2) + value.to_bytes(4)


def number(value: int) -> bytes:
    return value.to_bytes(4)


def message_of(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4) + content


class Peer:
    """One connection of a client, after its preface."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.encoder = Encoder()

    def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    def end(self) -> None:
        """Say that nothing more comes, and go on reading, or not."""
        self._writer.write_eof()

    async def receive(self) -> Frame:
        """Return the next frame; raises ``IncompleteReadError`` at the connection's end."""
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3]))
        return Frame(head[3], head[4], int.from_bytes(head[5:]), payload)

    async def find(self, kind: int, *, ack: bool = False) -> Frame:
        """Return the next frame of a kind, and leave those before it."""
        while True:
            one = await self.receive()
            if one.kind == kind and (kind not in (SETTINGS, PING) or bool(one.flags & ACK) is ack):
                return one

    async def call(self, parts: dict[int, bytearray] | None = None) -> tuple[int, bytes]:
        """Return the stream and the message of the next call that has come to its end; ``parts``: of those that run."""
        parts = {} if parts is None else parts
        while True:
            one = await self.find(DATA)
            parts.setdefault(one.stream, bytearray()).extend(one.payload)
            if one.flags & END_STREAM:
                return one.stream, bytes(parts.pop(one.stream)[5:])

    def block(self, fields: tuple[tuple[str, str], ...]) -> bytes:
        return bytes(self.encoder.encode(fields))

    def head(self, stream: int) -> bytes:
        return frame(HEADERS, END_HEADERS, stream, self.block(HEAD))

    def trailers(self, stream: int, *fields: tuple[str, str]) -> bytes:
        return frame(HEADERS, END_HEADERS | END_STREAM, stream, self.block(fields or OK))

    def answer(self, stream: int, content: bytes) -> None:
        self.send(self.head(stream), frame(DATA, 0, stream, message_of(content)), self.trailers(stream))


Script = Callable[[Peer], Awaitable[None]]


class RawServer:
    """Runs a script for each connection, and closes it at the script's end."""

    def __init__(self, scripts: list[Script]) -> None:
        self._scripts = scripts
        self.port = 0
        self.connections = 0
        self.problems: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            try:
                await reader.readexactly(len(PREFACE))
                await script(Peer(reader, writer))
            except AssertionError as problem:
                self.problems.append(problem)
        writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self.problems == []


@asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[RawServer]:
    """A server whose first connection runs the first script, and so on; further ones run the last."""
    served = RawServer(list(scripts))
    listening = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = listening.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        listening.close()
        await served.stop()
