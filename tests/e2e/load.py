"""An open-loop HTTP load that costs little CPU: keep-alive connections, one request at a time each."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

CLIENT_TIMEOUT_SECONDS = 5.0


class Answer(NamedTuple):
    """``sent`` and ``seconds`` are of the monotonic clock; status 0 is a broken connection, 408 a client time-out.

    ``number`` is the request's place in its load.
    """

    sent: float
    seconds: float
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    number: int = -1

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class Caller(Protocol):
    """Asks a server, one request at a time."""

    async def post(self, path: str, body: bytes, headers: str = "") -> Answer: ...

    def close(self) -> None: ...


class Connection:
    """One keep-alive connection; opened at the first request and again after a failure.

    A ``port`` that is a function is asked each time it is opened: callers may be sent from one server to another.
    """

    def __init__(self, host: str, port: int | Callable[[], int]) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes, headers: str = "") -> Answer:
        sent = time.monotonic()
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_SECONDS):
                status, received, content = await self._exchange(path, body, headers)
        except TimeoutError:
            self.close()
            return Answer(sent, time.monotonic() - sent, 408, {}, b"")
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return Answer(sent, time.monotonic() - sent, 0, {}, b"")
        return Answer(sent, time.monotonic() - sent, status, received, content)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, path: str, body: bytes, headers: str) -> tuple[int, dict[bytes, bytes], bytes]:
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # the server ended it between two requests, as it may; every client looks
        if self._streams is None:
            port = self._port if isinstance(self._port, int) else self._port()
            self._streams = await asyncio.open_connection(self._host, port)
        reader, writer = self._streams
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        received = dict(line.lower().split(b": ", 1) for line in lines[1:] if b": " in line)
        content = await reader.readexactly(int(received[b"content-length"]))
        if received.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split(b" ")[1]), received, content


@dataclass
class Load:
    """What was asked and answered; ``answers`` grows while the load runs, ``is_over`` ends it early."""

    answers: list[Answer] = field(default_factory=list)
    is_over: bool = False

    @property
    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]

    def prediction_ids(self) -> list[str]:
        return [answer.headers[b"x-prediction-id"].decode() for answer in self.answers if answer.status == 200]

    def percentile_seconds(self, percent: float) -> float:
        ordered = sorted(answer.seconds for answer in self.answers)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def run_load(
    port: int | Callable[[], int],
    path: str | Callable[[int], str],
    body_of: Callable[[int], bytes],
    *,
    per_second: float,
    seconds: float,
    connections: int = 16,
    load: Load | None = None,
    headers: str = "",
    connect: Callable[[str, int | Callable[[], int]], Caller] = Connection,
) -> Load:
    """Send ``per_second`` requests for ``seconds``; a slow answer delays nobody, except when all connections wait.

    ``path`` and ``body_of`` are asked by the number of a request. ``headers`` are further lines of each, with their
    ends; ``connect`` makes a caller of a host and a port.

    The load has a thread and an event loop of its own: a test that starts or stops a process blocks its own loop for
    seconds, in which answers that have arrived would count as late.
    """
    load = load if load is not None else Load()
    made = [connect("127.0.0.1", port) for _ in range(connections)]

    async def send() -> None:
        free: asyncio.Queue[Caller] = asyncio.Queue()
        for connection in made:
            free.put_nowait(connection)

        async def one(number: int) -> None:
            connection = await free.get()
            try:
                place = path if isinstance(path, str) else path(number)
                answer = await connection.post(place, body_of(number), headers)
                load.answers.append(answer._replace(number=number))
            finally:
                free.put_nowait(connection)

        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(started + number / per_second - time.monotonic())
                if load.is_over:
                    break
                group.create_task(one(number))
        for connection in made:
            connection.close()
        await asyncio.sleep(0)  # some end in a task, which begins now

    try:
        await asyncio.to_thread(asyncio.run, send())
    finally:
        load.is_over = True  # also of a load whose test was cancelled
    return load


@asynccontextmanager
async def calling(
    port: int, loads: Mapping[str, Load], body_of: Callable[[int], bytes], *, per_second: float, seconds: float
) -> AsyncIterator[None]:
    """Call each of several models until the block is over, for ``seconds`` at most."""

    async def call(model: str, load: Load) -> None:
        path = f"/v1/models/{model}/predict"
        await run_load(port, path, body_of, per_second=per_second, seconds=seconds, load=load)

    async with asyncio.TaskGroup() as group:
        for one in loads.items():
            group.create_task(call(*one))
        try:
            yield
        finally:
            for load in loads.values():
                load.is_over = True
