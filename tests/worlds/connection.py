"""A connection through a fake transport, with a fast path that answers or declines: no socket, in virtual time."""

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from understudy.entrypoints.proxy.api.predict_route import App, Receive, Scope, Send, read_body
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.server.connection import Connection
from understudy.entrypoints.proxy.server.head_rules import NO_RULES, HeadRules
from understudy.entrypoints.proxy.server.request_state import State
from understudy.entrypoints.proxy.server.response_writer import WRITE_WHOLE

RECEIVE_SECONDS, KEEP_ALIVE_SECONDS, LONG = 3.0, 10, 1_000.0
PREDICT = b"POST /v1/models/m/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n%b"
DECLINED = b"POST /v1/models/declined/predict HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n%b"
PLAIN = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n%b"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n%b\r\n0\r\nx-late: 1\r\n\r\n"
UPGRADE = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n%b"
KINDS = (PREDICT, DECLINED, PLAIN, CHUNKED, UPGRADE)
CLOSE = b"\r\nconnection: close\r\n"


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and when it was closed or aborted."""

    def __init__(self, held: socket.socket | None = None) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.written = b""
        self.closed_at: float | None = None
        self.aborted_at: float | None = None
        self.unsent_bytes = 0
        self.reads = True
        self._socket = held

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" and self._socket is not None else default

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed_at = self.loop.time()

    def abort(self) -> None:
        if self.aborted_at is None:
            self.closed_at = self.aborted_at = self.loop.time()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    @property
    def bodies(self) -> list[bytes]:
        """What was answered, in this order."""
        return re.findall(rb"HTTP/1.1 200 .*?\r\n\r\n(..)", self.written, re.DOTALL)


class FakeFastPath:
    """Answers what it does not decline with its body, now or when it is told to."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.waiting: list[Callable[[], None]] = []

    def offer(self, target: bytes, _headers: Any, body: bytes, writer: Any) -> bool:
        if b"declined" in target:
            return False
        if self.at_once:
            writer.answer(200, b"", body)
        else:
            self.waiting.append(lambda: writer.answer(200, b"", body))
        return True


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body: in one write where that may be."""
    body = await read_body(receive, 1_000_000, LONG)
    headers = [(b"content-length", b"%d" % len(body))]
    if not scope[WRITE_WHOLE](200, headers, body):
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Watched(Connection):
    """Notes which state follows which."""

    seen: set[tuple[State, State]]
    _now: State

    @property
    def _state(self) -> State:
        return self._now

    @_state.setter
    def _state(self, state: State) -> None:
        if hasattr(self, "_now"):
            self.seen.add((self._now, state))
        else:
            self.seen = set()
        self._now = state


class Peer:
    """A caller's end of a connection."""

    def __init__(
        self,
        fast_path: FakeFastPath | None = None,
        held: socket.socket | None = None,
        app: App = echo,
        rules: HeadRules = NO_RULES,
    ) -> None:
        config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_keep_alive=KEEP_ALIVE_SECONDS)
        self.server, self.state = ServerState(), {FAST_PATH: fast_path or FakeFastPath()}
        self.transport = FakeTransport(held)
        self.connection = Watched(
            receive_seconds=RECEIVE_SECONDS,
            head_rules=rules,
            config=config,
            server_state=self.server,
            app_state=self.state,
            _loop=self.transport.loop,
        )
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)

    async def settle(self) -> None:
        """Wait until everything that can be answered is answered, in no time."""
        for _ in range(200):
            await asyncio.sleep(0)
