"""The listener of the gRPC port with an echo behind it, and a caller on a raw socket who sends what a test says."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from hpack import Decoder, Encoder
from loopback.http2_server import ACK, END_HEADERS, END_STREAM, PREFACE, SETTINGS, WINDOW_UPDATE, Frame, frame, number

from understudy.entrypoints.proxy.overload.body_budget import BodyBudget
from understudy.entrypoints.proxy.rpc.http2.calls import Serving
from understudy.entrypoints.proxy.rpc.http2.listener import Arrival, ConnectionBounds, Listener
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.listening_socket import bound_socket
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, UnreadLimits
from understudy.errors import UnderstudyError

ECHO, WAIT, DEFECT = "/test.Echo/Echo", "/test.Echo/Wait", "/test.Echo/Defect"
LIMIT_BYTES = 1_048_576
MEMORY_BYTES = 4 * 1_048_576
BOUNDS = ConnectionBounds(connections=16, handshake_seconds=1.0, idle_seconds=300, age_seconds=1_800, grace_seconds=120)
INVALID = 3


class EchoPort:
    """A listener that answers each message with itself."""

    def __init__(self, bounds: ConnectionBounds = BOUNDS) -> None:
        loop = asyncio.get_running_loop()
        self.ended: list[tuple[str, int]] = []
        self.unread = UnreadAnswers(
            UnreadLimits(2_048, MEMORY_BYTES, 1.0), loop.time, lambda why, calls: self.ended.append((why, calls))
        )
        self.budget = BodyBudget(MEMORY_BYTES, MEMORY_BYTES, lambda *_: None, loop.time)
        self.open = asyncio.Event()
        """Until it is set, calls of ``WAIT`` have no answer."""
        self.begun = 0
        self.serving = Serving(self.handle, LIMIT_BYTES, self.unread, self.budget)
        self.listener = Listener(bounds, self.serving)
        self.port = 0

    async def handle(self, stream: CallStream) -> None:
        self.begun += 1
        try:
            if stream.head.http_status is not None:
                stream.refuse(stream.head.http_status)
                return
            message = await stream.read(5.0)
            if stream.head.path == DEFECT:
                raise ZeroDivisionError
            if stream.head.path == WAIT:
                await self.open.wait()
            stream.answer(message.body, stream.head.metadata)
        except UnderstudyError as problem:
            stream.fail(INVALID, problem.code, ())
        finally:
            stream.message.held.release()

    async def start(self, tls: Any = None) -> None:
        where = bound_socket("127.0.0.1", 0)
        self.port = where.getsockname()[1]
        await self.listener.start(where, tls)


@asynccontextmanager
async def echo_port(bounds: ConnectionBounds = BOUNDS, tls: Any = None) -> AsyncIterator[EchoPort]:
    found = EchoPort(bounds)
    await found.start(tls)
    try:
        yield found
    finally:
        found.open.set()
        await found.listener.end(0.5)
        found.unread.close()


def setting(name: int, value: int) -> bytes:
    return struct.pack(">HI", name, value)


def fields_of(path: str = ECHO, *metadata: tuple[str, str]) -> list[tuple[str, str]]:
    return [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "proxy"),
        ("te", "trailers"), ("content-type", "application/grpc"), *metadata,
    ]  # fmt: skip


def block_of(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return a block that uses no table."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(list(fields)))


def head(stream: int, path: str = ECHO, *metadata: tuple[str, str], flags: int = 0) -> bytes:
    return frame(1, END_HEADERS | flags, stream, block_of(fields_of(path, *metadata)))


def message_of(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4) + content


def call(stream: int, content: bytes = b"x", path: str = ECHO, *metadata: tuple[str, str]) -> bytes:
    return head(stream, path, *metadata) + frame(0, END_STREAM, stream, message_of(content))


class Answers:
    """What came on each stream."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self.fields: dict[int, list[tuple[str, str]]] = {}
        self.bodies: dict[int, bytes] = {}
        self.whole: set[int] = set()

    def take(self, one: Frame) -> None:
        if one.kind == 1:
            decoded = [(str(name), str(value)) for name, value in self._decoder.decode(one.payload)]
            self.fields.setdefault(one.stream, []).extend(decoded)
        elif one.kind == 0:
            self.bodies[one.stream] = self.bodies.get(one.stream, b"") + one.payload
        if one.kind in (0, 1) and one.flags & END_STREAM:
            self.whole.add(one.stream)


class RawCaller:
    """A connection that says hello, and then what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.frames: list[Frame] = []
        self.answers = Answers()
        self._has_greeted = False

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    def hello(self, settings: bytes = b"") -> None:
        self._has_greeted = True
        self.send(PREFACE, frame(SETTINGS, payload=settings))

    async def receive(self) -> Frame:
        """Return the next frame; raises ``IncompleteReadError`` at the connection's end."""
        prefix = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(prefix[:3]))
        found = Frame(prefix[3], prefix[4], int.from_bytes(prefix[5:]), payload)
        self.frames.append(found)
        self.answers.take(found)
        if self._has_greeted and found.kind == SETTINGS and not found.flags & ACK:
            self.send(frame(SETTINGS, ACK))
        return found

    async def find(self, kind: int, stream: int | None = None) -> Frame:
        async with asyncio.timeout(10):
            while True:
                found = await self.receive()
                if found.kind == kind and stream in (None, found.stream):
                    return found

    async def until_whole(self, *streams: int) -> None:
        async with asyncio.timeout(10):
            while not set(streams) <= self.answers.whole:
                await self.receive()

    async def until_end(self) -> list[Frame]:
        """Return the frames until the port has ended the connection."""
        async with asyncio.timeout(10):
            try:
                while True:
                    await self.receive()
            except (asyncio.IncompleteReadError, ConnectionError):
                return self.frames


@asynccontextmanager
async def raw_caller(port: int, *, greets: bool = True) -> AsyncIterator[RawCaller]:
    found = RawCaller(*await asyncio.open_connection("127.0.0.1", port))
    if greets:
        found.hello()
    try:
        yield found
    finally:
        found.writer.close()


async def not_reading(port: EchoPort) -> tuple[socket.socket, Arrival]:
    """Return a socket that reads none of its answers, of which the last ones stand in the port's own memory."""
    loop = asyncio.get_running_loop()
    silent = socket.socket()
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    silent.setblocking(False)
    await loop.sock_connect(silent, ("127.0.0.1", port.port))
    windows = frame(SETTINGS, payload=setting(4, 2**31 - 1)) + frame(WINDOW_UPDATE, 0, 0, number(2**30))
    await loop.sock_sendall(silent, PREFACE + windows)
    async with asyncio.timeout(20):
        while not any(one.is_greeted for one in port.listener.arrivals):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
        (arrival,) = port.listener.arrivals
        last = -1
        while not arrival.unsent_bytes:
            last += 2
            await loop.sock_sendall(silent, call(last, bytes(15_000)))
            while port.begun <= last // 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.001)
    return silent, arrival
