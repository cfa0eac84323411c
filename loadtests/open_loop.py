"""Callers who do not wait for each other: when each request is due is decided before the first one is sent.

A latency counts from when the request was due, so that a server that makes callers wait is not asked less often for it.
The loop waits with ``select``, whose time-outs are in microseconds; those of epoll and libuv are whole milliseconds.
"""

import asyncio
import gc
import random
import selectors
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Protocol, cast

from loadtests.least_unary import LeastUnary, infer_request
from loadtests.steady import Percentiles

CONNECTIONS = 64
PATIENCE_SECONDS = 5.0
"""For answers after the last request was sent; those that do not come are failed ones."""
_SEED = 12

Done = Callable[[str | None], None]
"""Told at a request's end what was wrong with its answer, or nothing."""


@dataclass
class Heard:
    """What came of a load. ``seconds`` are from due to answered, ``behind`` from due to sent."""

    seconds: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    due: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Requests without a good answer."""
        return self.due - len(self.seconds)

    @property
    def latency(self) -> Percentiles:
        """Of the good answers."""
        return percentiles_of(self.seconds)


class Caller(Protocol):
    """A way to reach a server."""

    async def open(self) -> None:
        """Connect."""

    def ask(self, number: int, done: Done) -> None:
        """Send a request now, or as soon as there is a connection for it."""

    def close(self) -> None:
        """Disconnect."""


def percentiles_of(seconds: Sequence[float]) -> Percentiles:
    """Return the median and the p99; not a number of nothing."""
    if not seconds:
        return Percentiles(float("nan"), float("nan"))
    ordered = sorted(seconds)
    return Percentiles(*(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000 for percent in (50, 99)))


def due_times(per_second: float, seconds: float, seed: int = _SEED) -> list[float]:
    """Return when requests of callers who know nothing of each other are due: random, the same for the same seed."""
    drawn = random.Random(seed)
    gaps = (drawn.expovariate(per_second) for _ in range(int(per_second * seconds)))
    return list(accumulate(gaps))


def call_on_time(caller: Caller, due: Sequence[float]) -> Heard:
    """Ask at each of these times, in seconds from now, and return what was heard."""
    gc.collect()
    gc.disable()  # a collection in this process would look like a slow answer
    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            return runner.run(_Schedule(caller, due).run())
    finally:
        gc.enable()


class _Schedule:
    """One load while it goes on."""

    def __init__(self, caller: Caller, due: Sequence[float]) -> None:
        self._caller = caller
        self._due = due
        self._sent = self._ended = 0
        self._heard = Heard(due=len(due))

    async def run(self) -> Heard:
        await self._caller.open()
        self._loop = asyncio.get_running_loop()
        self._all_ended = asyncio.Event()
        self._start = self._loop.time()
        self._send_due()
        try:
            async with asyncio.timeout(self._due[-1] + PATIENCE_SECONDS):
                await self._all_ended.wait()
        except TimeoutError:
            self._heard.problems["no answer in time"] += len(self._due) - self._ended
        finally:
            self._caller.close()
        return self._heard

    def _send_due(self) -> None:
        now = self._loop.time() - self._start
        while self._sent < len(self._due) and self._due[self._sent] <= now:
            due = self._due[self._sent]
            self._heard.behind.append(now - due)
            self._caller.ask(self._sent, partial(self._end, due))
            self._sent += 1
            now = self._loop.time() - self._start
        if self._sent < len(self._due):
            self._loop.call_at(self._start + self._due[self._sent], self._send_due)

    def _end(self, due: float, problem: str | None) -> None:
        if problem is None:
            self._heard.seconds.append(self._loop.time() - self._start - due)
        else:
            self._heard.problems[problem] += 1
        self._ended += 1
        if self._ended == len(self._due):
            self._all_ended.set()


class GrpcCaller:
    """One HTTP/2 connection that all calls share, as a gRPC client has it.

    Args:
        port: Where the server listens.
        good_trailers: As of :class:`.least_unary.LeastUnary`.
    """

    def __init__(self, port: int, good_trailers: bytes | None = None) -> None:
        self._port = port
        self._good_trailers = good_trailers
        self._request = infer_request(rows=1)

    async def open(self) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        self._transport, self._client = await loop.create_connection(
            lambda: LeastUnary(self._good_trailers), "127.0.0.1", self._port
        )

    def ask(self, _number: int, done: Done) -> None:
        """Call the model server."""
        self._client.call(self._request).add_done_callback(lambda answer: done(_problem_of(answer)))

    def close(self) -> None:
        """Disconnect."""
        self._transport.close()


class HttpCaller:
    """Keep-alive connections, one request at a time on each; a request takes any that is free.

    Args:
        port: Where the server listens.
        path: What is posted to.
        body_of: The body of the n-th request.
        connections: How many there are; when none is free, a request waits for one.
    """

    def __init__(self, port: int, path: str, body_of: Callable[[int], bytes], connections: int = CONNECTIONS) -> None:
        self._port, self._path, self._body_of = port, path, body_of
        self._count = connections
        self._free: list[_HttpConnection] = []
        self._opened: list[_HttpConnection] = []
        self._waiting: deque[tuple[int, Done]] = deque()

    async def open(self) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        self._opened = [
            (await loop.create_connection(lambda: _HttpConnection(self._is_free), "127.0.0.1", self._port))[1]
            for _ in range(self._count)
        ]
        self._free = list(self._opened)
        self._waiting.clear()

    def ask(self, number: int, done: Done) -> None:
        """Post a request; its head has a value of its own, as one with a request id has."""
        while self._free and self._free[-1].is_over:
            self._free.pop()
        if not self._free:
            self._waiting.append((number, done))
            return
        body = self._body_of(number)
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nX-Entity-Id: {number}\r\n\r\n"
        )
        self._free.pop().send(head.encode() + body, done)

    def close(self) -> None:
        """Disconnect."""
        for connection in self._opened:
            connection.close()

    def _is_free(self, connection: "_HttpConnection") -> None:
        self._free.append(connection)
        if self._waiting:
            self.ask(*self._waiting.popleft())


class _HttpConnection(asyncio.Protocol):
    """Reads answers that have a ``content-length``; one that the server ends is not used again."""

    def __init__(self, is_free: Callable[["_HttpConnection"], None]) -> None:
        self._is_free = is_free
        self._done: Done | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @property
    def is_over(self) -> bool:
        return self._transport.is_closing()

    def send(self, request: bytes, done: Done) -> None:
        self._done = done
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head):
            return
        self._buffer = b""
        status = head.partition(b"\r\n")[0]
        self._tell(None if status.startswith(b"HTTP/1.1 200 ") else status.decode())
        self._is_free(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._tell("the connection ended")

    def close(self) -> None:
        self._transport.close()

    def _tell(self, problem: str | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(problem)


def _problem_of(answer: "asyncio.Future[bytes]") -> str | None:
    if answer.cancelled():
        return "cancelled"
    problem = answer.exception()
    return None if problem is None else str(problem)


def _content_length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0])
