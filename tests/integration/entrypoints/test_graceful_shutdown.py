"""Graceful shutdown: what a server that is to end does with callers that still ask."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from understudy.entrypoints.proxy.api.predict_route import Receive, Scope, Send, read_body
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.processes.uvicorn_process import uvicorn_options
from understudy.entrypoints.proxy.server.graceful_shutdown import GracefulServer
from understudy.settings import Settings

DRAIN_SECONDS = 60.0
"""Longer than a test: what ends earlier did not wait for the drain."""
A_LONG_TIME = 30.0
ASK = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"
PREDICT = b"POST /v1/models/m/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"
CLOSE = b"\r\nconnection: close\r\n"


class Held:
    """Answers with the body, once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, 100_000, A_LONG_TIME)
        self.asked += 1
        await self.may_answer.wait()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})


class Served:
    """A server, and the end that it was asked for."""

    def __init__(self, server: GracefulServer, app: Held, running: asyncio.Task[None]) -> None:
        self.server, self.app, self.running = server, app, running
        self.writers: list[asyncio.StreamWriter] = []
        self.port = int(server.servers[0].sockets[0].getsockname()[1])

    async def end(self) -> None:
        """Ask it to end, and wait until it drains."""
        self.server.should_exit = True
        await until(lambda: "understudy.draining" in self.server.lifespan.state)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(A_LONG_TIME):
        while not holds():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(
    drain_seconds: float = DRAIN_SECONDS, state: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Served]:
    app = Held()
    settings = {
        **uvicorn_options(Settings(auth=True)),
        "lifespan": "off",
        "loop": "asyncio",
        "timeout_graceful_shutdown": 30,
    }
    server = GracefulServer(uvicorn.Config(app, port=0, **settings), drain_seconds, **options)
    running = asyncio.create_task(server._serve())  # noqa: SLF001 - serve() takes the signals of this process
    await until(lambda: server.started)
    server.lifespan.state.update(state or {})
    served = Served(server, app, running)
    try:
        yield served
    finally:
        server.should_exit = server.force_exit = True
        app.may_answer.set()
        async with asyncio.timeout(A_LONG_TIME):
            for writer in served.writers:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
            await running


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as found:
        yield found


class Caller:
    """A connection whose bytes are sent by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, body: bytes = b"{}") -> bytes:
        async with asyncio.timeout(A_LONG_TIME):
            return await self._reader.readuntil(body)

    async def rest(self) -> bytes:
        """Return what comes until the server closes."""
        async with asyncio.timeout(A_LONG_TIME):
            return await self._reader.read()


async def a_caller(served: Served, *, asked: bool = True) -> Caller:
    """Return a caller that is connected, and was answered once."""
    known = len(served.server.server_state.connections)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    served.writers.append(writer)
    caller = Caller(reader, writer)
    await until(lambda: len(served.server.server_state.connections) > known)
    if asked:
        caller.send(ASK + b"{}")
        assert CLOSE not in await caller.answer()
    return caller


@pytest.mark.parametrize("asked", [True, False])
async def test_who_keeps_a_connection_is_answered_once_more_and_told_that_it_is_the_last_time(served, asked):
    caller = await a_caller(served, asked=asked)
    await served.end()
    await asyncio.sleep(0.3)

    caller.send(ASK + b"{}")

    assert CLOSE in await caller.answer()
    assert await caller.rest() == b""
    await asyncio.wait_for(served.running, A_LONG_TIME)


async def test_who_is_connected_after_the_end_was_asked_for_is_answered_while_nobody_else_listens(served):
    keeper = await a_caller(served)
    await served.end()

    late = await a_caller(served, asked=False)
    late.send(ASK + b"{}")

    assert CLOSE in await late.answer()
    keeper.send(ASK + b"{}")
    assert CLOSE in await keeper.answer()


async def test_what_others_listen_on_as_well_is_left_to_them_at_once():
    async with serving(is_alone=lambda: False) as served:
        keeper = await a_caller(served)
        await served.end()

        with pytest.raises(ConnectionRefusedError):  # here no other process listens
            await asyncio.open_connection("127.0.0.1", served.port)

        assert "understudy.leaving" not in served.server.lifespan.state
        keeper.send(ASK + b"{}")
        assert CLOSE in await keeper.answer()
        await asyncio.wait_for(served.running, A_LONG_TIME)


async def test_a_request_under_way_is_answered_as_the_last_one(served):
    caller = await a_caller(served)
    served.app.may_answer.clear()
    caller.send(ASK + b"{}")
    await until(lambda: served.app.asked == 2)

    await served.end()
    served.app.may_answer.set()

    assert CLOSE in await caller.answer()
    assert await caller.rest() == b""


async def test_a_request_of_which_half_has_come_is_answered(served):
    caller = await a_caller(served)
    caller.send(ASK + b"{")
    await asyncio.sleep(0.1)
    await served.end()
    await asyncio.sleep(0.1)

    caller.send(b"}")

    assert CLOSE in await caller.answer()


async def test_of_requests_sent_together_all_are_answered_and_only_the_last_answer_says_so(served):
    caller = await a_caller(served)
    served.app.may_answer.clear()
    caller.send(ASK + b"aa" + ASK + b"bb" + ASK + b"cc")
    await until(lambda: served.app.asked == 2)
    await served.end()

    caller.send(ASK + b"dd")
    await asyncio.sleep(0.1)
    served.app.may_answer.set()
    answers = [await caller.answer(body) for body in (b"aa", b"bb", b"cc", b"dd")]

    assert [CLOSE in answer for answer in answers] == [False, False, False, True]
    assert await caller.rest() == b""


async def test_a_request_that_came_in_the_moment_of_closing_is_answered():
    async with serving() as served:
        idle = await a_caller(served, asked=False)
        (connection,) = served.server.server_state.connections
        with socket.create_connection(("127.0.0.1", served.port)) as caller:
            await until(lambda: len(served.server.server_state.connections) == 2)
            (other,) = served.server.server_state.connections - {connection}
            caller.sendall(ASK + b"{}")
            other.shutdown()  # the bytes are here, and no turn of the event loop has read them
            connection.shutdown()

            caller.settimeout(A_LONG_TIME)
            answer = await asyncio.to_thread(caller.recv, 1_000)
        assert await idle.rest() == b""

    assert CLOSE in answer


async def test_who_asks_nothing_is_waited_for_as_long_as_a_drain_may_last():
    async with serving(drain_seconds=1.0) as served:
        caller = await a_caller(served)
        began = time.monotonic()
        await served.end()

        assert await caller.rest() == b""
        assert time.monotonic() - began >= 0.9
        await asyncio.wait_for(served.running, A_LONG_TIME)


async def test_without_callers_it_ends_long_before_that(served):
    await served.end()

    await asyncio.wait_for(served.running, A_LONG_TIME)


class FakeFastPath:
    """Takes every call, and answers when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[bytes, Any]] = []
        self.answers_at_once = False

    def offer(self, _target: bytes, _headers: Any, body: bytes, writer: Any) -> bool:
        self.waiting.append((body, writer))
        if self.answers_at_once:
            self.answer()
        return True

    def answer(self) -> None:
        for body, writer in self.waiting:
            writer.answer(200, b"", body)
        self.waiting.clear()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("sent", [PREDICT + b"{}", PREDICT + b"[]" + PREDICT + b"{}"])
async def test_a_fast_path_call_is_answered_as_the_last_one(at_once, sent):
    fast_path = FakeFastPath()
    fast_path.answers_at_once = at_once
    async with serving(state={FAST_PATH: fast_path}) as served:
        caller = await a_caller(served, asked=False)
        await served.end()

        caller.send(sent)
        await until(lambda: bool(fast_path.waiting) or at_once)
        fast_path.answer()
        answers = await caller.answer()

        assert answers.count(CLOSE) == 1
        assert answers.index(CLOSE) > answers.rindex(b"HTTP/1.1 200 ")
        assert await caller.rest() == b""


async def test_a_fast_path_call_under_way_is_answered_as_the_last_one():
    fast_path = FakeFastPath()
    async with serving(state={FAST_PATH: fast_path}) as served:
        caller = await a_caller(served, asked=False)
        caller.send(PREDICT + b"{}")
        await until(lambda: bool(fast_path.waiting))

        await served.end()
        fast_path.answer()

        assert CLOSE in await caller.answer()
        assert await caller.rest() == b""
