"""What a connection does with requests that never arrive, on the server that the proxy runs on."""

import asyncio
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from understudy.entrypoints.proxy.api.lingering_close import MAX_PAUSE_SECONDS, MAX_SECONDS
from understudy.entrypoints.proxy.api.predict_route import App, Receive, Scope, Send, read_body, send_reply
from understudy.entrypoints.proxy.api.request_id import RequestIdMiddleware
from understudy.entrypoints.proxy.messages.problems import problem_body, problem_headers, status_of
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.processes.uvicorn_process import uvicorn_options
from understudy.entrypoints.proxy.server.backpressure import TURN_BYTES
from understudy.entrypoints.proxy.server.response_writer import WRITE_WHOLE
from understudy.errors import UnderstudyError
from understudy.settings import Settings

RECEIVE_SECONDS = 0.3
WHOLE = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
NO_BODY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"
NO_END_OF_HEADERS = b"POST / HTTP/1.1\r\nhost: x\r\nx-padding: "
EARLY = b"GET /early HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"

pytestmark = pytest.mark.timed


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body; to ``/early`` before there is one, to ``/whole`` in one write where that may be.

    To ``/large/…`` with as many bytes as the path says.
    """
    try:
        body = b"early" if scope["path"] == "/early" else await read_body(receive, 200_000, RECEIVE_SECONDS)
        if scope["path"].startswith("/large/"):
            body = b"x" * int(scope["path"].removeprefix("/large/"))
        reply = Reply(200, [], body)
    except UnderstudyError as problem:
        reply = Reply(status_of(problem), problem_headers(problem), problem_body(problem, scope["path"]))
    length = (b"content-length", b"%d" % len(reply.body))
    if scope["path"] != "/whole" or not scope[WRITE_WHOLE](reply.status, [length, *reply.headers], reply.body):
        await send_reply(send, reply)


@asynccontextmanager
async def serving(app: App, *, auth: bool = True) -> AsyncIterator[uvicorn.Server]:
    options = {
        **uvicorn_options(Settings(receive_seconds=RECEIVE_SECONDS, auth=auth)),
        "lifespan": "off",
        "timeout_keep_alive": 2,
    }
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    task = asyncio.create_task(server._serve())  # noqa: SLF001 - serve() takes the signals of this process
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    yield server
    server.should_exit = True
    await task


def port_of(server: uvicorn.Server) -> int:
    return int(server.servers[0].sockets[0].getsockname()[1])


@pytest.fixture
def port(server: uvicorn.Server) -> int:
    return port_of(server)


@pytest.fixture
async def server() -> AsyncIterator[uvicorn.Server]:
    async with serving(echo) as found:
        yield found


class Caller:
    """A connection on which bytes are sent as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> tuple[bytes, float]:
        """Return what comes until the other side closes, and how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(10):
            return await self.reader.read(), time.monotonic() - began


@pytest.fixture
async def call(port: int) -> AsyncIterator[Any]:
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> Caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        opened.append(writer)
        return Caller(reader, writer)

    yield connect
    for writer in opened:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_a_body_that_does_not_come_is_answered_and_the_connection_closed(call):
    caller = await call()

    await caller.send(NO_BODY + b"{")
    answer, seconds = await caller.rest()

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert b'"code":"E107"' in answer
    assert RECEIVE_SECONDS * 0.9 < seconds < 1.5


@pytest.mark.parametrize("before", [b"", WHOLE])
async def test_behind_the_request_id_middleware_such_a_connection_is_closed_too(before):
    no_handler: Any = SimpleNamespace(tracer=None)  # nothing fails here, so no problem is answered

    async with serving(RequestIdMiddleware(echo, lambda: no_handler, lambda: "0" * 32)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        caller = Caller(reader, writer)
        await caller.send(before + NO_BODY.replace(b"POST / ", b"POST /whole "))
        answer, seconds = await caller.rest()
        writer.close()

    assert b"HTTP/1.1 408 " in answer
    assert answer.count(b"\r\nconnection: close\r\n") == 1
    assert seconds < 1.5


REFUSED_HEADS = {
    400: b"host: localhost\r\nhost: localhost\r\n",
    403: b"host: localhost\r\norigin: http://evil.example\r\n",
    421: b"host: evil.example\r\n",
}


def answer_to_a_slow_sender(port: int, head: bytes, pieces: int) -> bytes:
    """Send a body a byte at a time, as a blocking client does, and read only then."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"POST /v1/models/visits/predict HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n" % (head, pieces))
        for _ in range(pieces):
            time.sleep(0.05)
            connection.sendall(b"x")
        answer = b""
        while part := connection.recv(10_000):
            answer += part
    return answer


@pytest.mark.parametrize("status", REFUSED_HEADS)
async def test_a_caller_whose_head_is_refused_has_its_answer_when_it_is_done_with_its_body(start, status):
    proxy = await start(auth=False)

    async with serving(proxy.app, auth=False) as server:
        answer = await asyncio.to_thread(answer_to_a_slow_sender, port_of(server), REFUSED_HEADS[status], 10)

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"}")


async def test_a_refused_head_is_answered_at_once_and_what_is_no_http_behind_it_not_at_all(start):
    proxy = await start(auth=False)

    async with serving(proxy.app, auth=False) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        began = time.monotonic()
        writer.write(b"POST / HTTP/1.1\r\nhost: evil.example\r\ntransfer-encoding: chunked\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        seconds = time.monotonic() - began
        writer.write(b"no chunk\r\n\r\n")
        rest, _ = await Caller(reader, writer).rest()
        writer.close()

    assert head.startswith(b"HTTP/1.1 421 ")
    assert seconds < MAX_PAUSE_SECONDS / 2
    assert b"HTTP/1.1" not in rest


BODY = b"x" * 1_000_000
REFUSED_EARLY = {
    401: b"POST /v1/models/visits/predict HTTP/1.1\r\nconnection: close\r\n",
    404: b"POST /v1/no/such/route HTTP/1.1\r\nauthorization: Bearer ops.secret\r\nconnection: close\r\n",
    413: b"POST /v1/models/visits/predict HTTP/1.1\r\nauthorization: Bearer ops.secret\r\nconnection: close\r\n",
    429: b"POST /v1/outcomes HTTP/1.0\r\nauthorization: Bearer ops.secret\r\n",
}


def answer_to_a_whole_body(port: int, head: bytes, body: bytes) -> bytes:
    """Send all of a body as blocking clients do, and read only then; they fail where sending does."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"%bhost: localhost\r\ncontent-length: %d\r\n\r\n" % (head, len(body)))
        connection.sendall(body)
        answer = b""
        while part := connection.recv(10_000):
            answer += part
    return answer


@pytest.mark.parametrize("status", REFUSED_EARLY)
async def test_a_caller_that_sends_a_long_body_reads_the_refusal_that_ended_its_connection(start, status):
    proxy = await start(auth=True, key_calls_per_second=0.001 if status == 429 else None)
    body = BODY * 2 if status == 413 else BODY

    async with serving(proxy.app) as server:
        answers = [
            await asyncio.to_thread(answer_to_a_whole_body, port_of(server), REFUSED_EARLY[status], body)
            for _ in range(102 if status == 429 else 100)
        ]

    statuses = Counter(answer[9:12] for answer in answers)
    assert statuses[b"%d" % status] >= 100, statuses
    assert {answer[-1:] for answer in answers} == {b"}"}


async def test_a_refused_body_that_trickles_holds_its_connection_no_longer_than_a_lingering_close(start):
    proxy = await start(auth=True)

    async with serving(proxy.app) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        began = time.monotonic()
        writer.write(REFUSED_EARLY[401] + b"host: localhost\r\ncontent-length: 1000000\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            while not reader.at_eof() and time.monotonic() - began < 3 * MAX_SECONDS:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.1)
        seconds = time.monotonic() - began
        writer.close()

    assert head.startswith(b"HTTP/1.1 401 ")
    assert MAX_SECONDS * 0.9 < seconds < 2 * MAX_SECONDS


@pytest.mark.parametrize("before", [b"", WHOLE])
async def test_headers_that_never_end_close_the_connection_however_they_trickle(call, before):
    caller = await call()
    await caller.send(before + NO_END_OF_HEADERS)

    async def trickle() -> None:
        while True:
            await asyncio.sleep(RECEIVE_SECONDS / 10)
            await caller.send(b"x")

    trickling = asyncio.create_task(trickle())
    with suppress(ConnectionError):
        _, seconds = await caller.rest()
        assert seconds < 1.5
    trickling.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await trickling


async def test_what_trickles_in_after_the_answer_does_not_keep_a_connection(call):
    caller = await call()
    await caller.send(EARLY)
    assert (await caller.reader.readuntil(b"early")).startswith(b"HTTP/1.1 200 ")

    await caller.send(b"x")

    _, seconds = await caller.rest()
    assert seconds < 1.5


async def test_a_connection_without_a_request_lasts_as_long_as_one_between_two(call):
    caller = await call()

    answer, seconds = await caller.rest()

    assert answer == b""
    assert 1.5 < seconds < 6


async def test_a_connection_that_was_busy_lasts_as_long_after_its_last_answer(call):
    caller = await call()
    for _ in range(3):
        await caller.send(WHOLE)
        assert (await caller.reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.8)  # all together longer than a connection may be idle

    answer, seconds = await caller.rest()

    assert answer == b""
    assert 0.9 < seconds < 6


async def test_a_request_in_pieces_is_answered_and_the_next_one_on_the_same_connection_too(call):
    caller = await call()

    for _ in range(3):
        for piece in (WHOLE[:20], WHOLE[20:50], WHOLE[50:]):
            await caller.send(piece)
            await asyncio.sleep(0.02)
        assert (await caller.reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 ")
    await asyncio.sleep(RECEIVE_SECONDS * 2)  # a clock that was not stopped would close the connection
    await caller.send(WHOLE)

    assert (await caller.reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 ")


def at(path: bytes, request: bytes, *headers: bytes) -> bytes:
    return request.replace(b"POST / ", b"POST " + path + b" ").replace(b"\r\n\r\n", b"".join((*headers, b"\r\n\r\n")))


@pytest.mark.parametrize("headers", [[], [b"\r\nconnection: close"], [b"\r\nexpect: 100-continue"]])
async def test_an_answer_in_one_write_has_the_same_bytes_as_one_by_asgi(call, headers):
    answers = []
    for path in (b"/", b"/whole"):
        caller = await call()
        await caller.send(at(path, WHOLE, *headers) + at(path, WHOLE, b"\r\nconnection: close"))
        answers.append(re.sub(rb"\r\ndate: [^\r]+", b"", (await caller.rest())[0]))

    assert answers[0].count(b"HTTP/1.1 200 ") == (1 if headers == [b"\r\nconnection: close"] else 2)
    assert answers[1] == answers[0]


async def test_requests_sent_together_are_answered_in_order(call):
    caller = await call()
    bodies = [b"%02d" % number for number in range(30)]
    requests = [at(b"/whole" if n % 3 else b"/", WHOLE).replace(b"{}", body) for n, body in enumerate(bodies)]

    await caller.send(b"".join(requests) + at(b"/", WHOLE, b"\r\nconnection: close"))
    answer, _ = await caller.rest()

    assert re.findall(rb"\r\n\r\n(\d\d)", answer) == bodies


class Turns:
    """Counts the turns of an event loop, and in which of them something happened."""

    def __init__(self) -> None:
        self.number = 0
        self.happened: Counter[int] = Counter()
        self._loop = asyncio.get_running_loop()
        self._turn()

    def _turn(self) -> None:
        self.number += 1
        self._soon = self._loop.call_soon(self._turn)

    def note(self) -> None:
        self.happened[self.number] += 1

    def stop(self) -> None:
        self._soon.cancel()


TOGETHER = 2_000
MAX_PER_TURN = 2 * TURN_BYTES // len(WHOLE)
"""Twice what a turn reads: a turn of the event loop may fall into one of the counter."""


async def test_two_thousand_requests_in_one_write_leave_turns_to_others_and_few_wait_at_a_time(server, call):
    caller = await call()
    longest: list[int] = [0]

    async def look() -> None:
        while True:
            longest[0] = max([longest[0], *(len(one.pipeline) for one in server.server_state.connections)])
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    bodies = [b"%04d" % number for number in range(TOGETHER)]
    request = at(b"/whole", WHOLE).replace(b"length: 2", b"length: 4")
    caller.writer.write(b"".join(request.replace(b"{}", body) for body in bodies))
    await caller.send(at(b"/", WHOLE, b"\r\nconnection: close"))
    answer, _ = await caller.rest()
    looking.cancel()

    assert re.findall(rb"\r\n\r\n(\d{4})", answer) == bodies
    assert 0 < longest[0] <= MAX_PER_TURN


async def test_two_thousand_calls_that_are_answered_at_once_leave_turns_to_others():
    turns = Turns()

    class AtOnce:
        """Answers every call where it stands."""

        def offer(self, _target: bytes, _headers: Any, body: bytes, writer: Any) -> bool:
            turns.note()
            writer.answer(200, b"", body)
            return True

    async with serving(echo) as server:
        server.lifespan.state[FAST_PATH] = AtOnce()
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
        request = WHOLE.replace(b"POST / ", b"POST /v1/models/m/predict ")
        writer.write(request * TOGETHER + at(b"/", WHOLE, b"\r\nconnection: close"))
        answer, _ = await Caller(reader, writer).rest()
        writer.close()
    turns.stop()

    assert answer.count(b"HTTP/1.1 200 ") == TOGETHER + 1
    assert sum(turns.happened.values()) == TOGETHER
    assert max(turns.happened.values()) <= MAX_PER_TURN


@pytest.mark.parametrize("before", [b"", WHOLE, WHOLE * 200])
@pytest.mark.parametrize("behind", [b"", WHOLE * 200])
async def test_a_long_body_among_many_requests_is_theirs_and_no_other_ones(call, before, behind):
    caller = await call()
    body = b"x" * 100_000
    long = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    await caller.send(before + long + behind + at(b"/", WHOLE, b"\r\nconnection: close"))
    answer, _ = await caller.rest()

    assert answer.count(b"HTTP/1.1 200 ") == before.count(b"POST") + 1 + behind.count(b"POST") + 1
    assert answer.count(body) == 1


WISHES = (
    b"connection: upgrade\r\nupgrade: h2c",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    b"connection: keep-alive\r\nconnection: upgrade\r\nupgrade: websocket",
)


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("piece_bytes", [1, 30, 10_000])
async def test_a_caller_that_would_like_another_protocol_is_answered_in_this_one_with_its_body(
    call, wish, chunked, piece_bytes
):
    caller = await call()
    asking = WHOLE.replace(b"host: x", b"host: x\r\n" + wish)
    if chunked:
        asking = asking.replace(b"content-length: 2", b"transfer-encoding: chunked").replace(
            b"{}", b"2\r\n{}\r\n0\r\n\r\n"
        )
    last = WHOLE.replace(b"host: x", b"host: x\r\nconnection: close").replace(b"{}", b"[]")

    data = asking * 3 + last
    for start in range(0, len(data), piece_bytes):
        await caller.send(data[start : start + piece_bytes])
        await asyncio.sleep(0)
    answer, _ = await caller.rest()

    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200"] * 4
    assert re.findall(rb"\r\n\r\n(..)", answer) == [b"{}"] * 3 + [b"[]"]


async def test_a_thousand_wishes_in_one_piece_are_read_one_after_another(call):
    caller = await call()
    asking = b"POST / HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\n{}"

    await caller.send(asking * 1_000 + WHOLE.replace(b"host: x", b"host: x\r\nconnection: close"))
    answer, _ = await caller.rest()

    assert answer.count(b"HTTP/1.1 200 ") == 1_001


@pytest.mark.parametrize("before", [b"", WHOLE])
@pytest.mark.parametrize("field", [b"x-padding: " + b"x" * 1_000 + b"\r\n", b"x" * 1_000])
async def test_a_head_without_end_is_refused_after_so_many_bytes(call, before, field):
    caller = await call()
    head = b"GET / HTTP/1.1\r\nhost: x\r\n" + (b"x-one: " if field[-1:] == b"x" else b"")
    await caller.send(before + head)
    sent = 0
    with suppress(ConnectionError):
        while sent < 10_000_000 and not caller.reader.at_eof():
            await caller.send(field)
            sent += len(field)
            await asyncio.sleep(0)
        answer, _ = await caller.rest()
        assert b"HTTP/1.1 431 " in answer

    assert sent < 10_000_000


async def test_trailers_are_no_headers_however_many(call):
    caller = await call()
    await caller.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    await caller.send(b"x-late: 1\r\n" * 100 + b"\r\n" + WHOLE)

    answers = b""
    async with asyncio.timeout(5):
        while answers.count(b"{}") < 2:
            answers += await caller.reader.read(1_000)

    assert answers.count(b"HTTP/1.1 200 ") == 2


async def test_a_caller_who_reads_nothing_of_its_answers_is_disconnected(port):
    body = b"x" * 999
    request = b"POST /whole HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)

    def send_only() -> None:
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            caller.settimeout(15)
            caller.connect(("127.0.0.1", port))
            while True:
                caller.sendall(request)

    with pytest.raises(ConnectionError):
        await asyncio.to_thread(send_only)


async def test_a_long_body_behind_a_head_in_two_reads_is_no_long_head(call):
    caller = await call()
    body = b"x" * 150_000
    request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    await caller.send(request[:30])
    await asyncio.sleep(0.05)
    await caller.send(request[30:])

    assert (await caller.reader.readuntil(b"xxx")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("rest", [b"0\r\nx-late: ", b"0\r\n", b"5;"])
async def test_what_follows_a_body_in_chunks_without_end_is_broken_off_after_so_many_bytes(call, rest):
    caller = await call()
    line = b"x-late: 1\r\n" * 100 if rest == b"0\r\n" else b"y" * 1_100
    await caller.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n" + rest)
    sent = 0
    with suppress(ConnectionError):
        while sent < 10_000_000 and not caller.reader.at_eof():
            await caller.send(line)
            sent += len(line)
            await asyncio.sleep(0)

    assert sent < 10_000_000


async def test_a_request_that_began_behind_another_has_the_same_time_to_arrive(call):
    caller = await call()
    await caller.send(WHOLE + b"POST / HT")
    await caller.reader.readuntil(b"{}")

    _, seconds = await caller.rest()
    assert seconds < 1.5


async def test_the_rest_of_a_request_that_was_answered_early_leaves_the_connection_as_it_was(call):
    caller = await call()
    await caller.send(EARLY)
    await caller.reader.readuntil(b"early")
    await caller.send(b"123456789")
    await asyncio.sleep(RECEIVE_SECONDS * 2)
    await caller.send(WHOLE)

    assert (await caller.reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200 ")


async def test_a_caller_who_reads_slowly_gets_all_of_its_answer(port):
    size = 8_000_000

    def read_slowly() -> int:
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            caller.settimeout(15)
            caller.connect(("127.0.0.1", port))
            caller.sendall(b"GET /large/%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % size)
            got = 0
            while piece := caller.recv(65_536):
                got += len(piece)
                time.sleep(RECEIVE_SECONDS / 30)
            return got

    assert await asyncio.to_thread(read_slowly) > size


async def test_an_answer_that_its_caller_does_not_read_does_not_keep_a_connection_that_is_over(server, port):
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        caller.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(caller, ("127.0.0.1", port))
        unsent = 0
        async with asyncio.timeout(20):
            while not unsent:  # until the kernel takes no more; little enough that nothing is paused
                await loop.sock_sendall(caller, b"GET /large/20000 HTTP/1.1\r\nhost: x\r\n\r\n")
                await asyncio.sleep(0.01)
                unsent = sum(one.transport.get_write_buffer_size() for one in server.server_state.connections)
        async with asyncio.timeout(20):
            while server.server_state.connections:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.05)
