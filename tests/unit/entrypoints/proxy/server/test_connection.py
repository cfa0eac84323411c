"""A connection through a fake transport in virtual time: no socket, and timeouts to the second."""

import asyncio
import re
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState
from virtual_time import in_virtual_time, run_in_virtual_time

from understudy.entrypoints.proxy.api.predict_route import Receive, Scope, Send, read_body
from understudy.entrypoints.proxy.predict.fast_path import FAST_PATH
from understudy.entrypoints.proxy.server.backpressure import TURN_BYTES
from understudy.entrypoints.proxy.server.connection import DRAINING, MAX_HEAD, Connection
from understudy.entrypoints.proxy.server.request_state import TRANSITIONS, State
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

    def __init__(self, fast_path: FakeFastPath | None = None, held: socket.socket | None = None) -> None:
        config = uvicorn.Config(echo, log_config=None, lifespan="off", ws="none", timeout_keep_alive=KEEP_ALIVE_SECONDS)
        self.server, self.state = ServerState(), {FAST_PATH: fast_path or FakeFastPath()}
        self.transport = FakeTransport(held)
        self.connection = Watched(
            receive_seconds=RECEIVE_SECONDS,
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


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=12),
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
    st.booleans(),
)
def test_requests_are_answered_in_order_however_they_are_cut_into_reads(kinds, sizes, waits):
    bodies = [b"%02d" % number for number in range(len(kinds))]
    sent = b"".join(kind % body for kind, body in zip(kinds, bodies, strict=True))

    async def scenario() -> Peer:
        peer, start = Peer(), 0
        while start < len(sent):
            size = sizes[start % len(sizes)]
            peer.send(sent[start : start + size])
            start += size
            if waits:
                await peer.settle()
        await peer.settle()
        assert peer.transport.closed_at is None
        await asyncio.sleep(KEEP_ALIVE_SECONDS * 3)
        return peer

    peer = run_in_virtual_time(scenario())

    assert peer.transport.bodies == bodies
    assert peer.transport.closed_at == pytest.approx(KEEP_ALIVE_SECONDS, abs=0.1)  # nothing of a request is left open


def test_the_states_follow_each_other_as_the_table_says_and_every_way_is_taken():
    listed = {(state, follower) for state, followers in TRANSITIONS.items() for follower in followers}

    async def scenario() -> set[tuple[State, State]]:
        peer = Peer()
        peer.send(PREDICT.replace(b"host", b"connection: keep-alive\r\nhost") % b"aa")  # for the parser
        peer.send((PREDICT % b"bb") * 2 + (PLAIN % b"cc"))
        peer.send((UPGRADE % b"dd") + (PREDICT % b"ee")[:-1])
        await peer.settle()
        peer.send(b"e")
        await peer.settle()
        peer.send((PREDICT % b"ff")[:-1])
        return peer.connection.seen

    assert run_in_virtual_time(scenario()) == listed


@in_virtual_time
async def test_a_head_that_trickles_has_the_read_timeout_from_its_first_byte():
    peer = Peer()
    await asyncio.sleep(5)

    for byte in PLAIN:
        peer.send(bytes([byte]))
        await asyncio.sleep(0.5)
        if peer.transport.closed_at is not None:
            break

    assert peer.transport.closed_at == pytest.approx(5 + RECEIVE_SECONDS)
    assert peer.transport.written == b""


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_connection_is_kept_from_its_last_answer_on(kind):
    peer = Peer()

    for _ in range(4):
        await asyncio.sleep(KEEP_ALIVE_SECONDS - 1)
        peer.send(kind % b"{}")
        await peer.settle()
    await asyncio.sleep(LONG)

    assert len(peer.transport.bodies) == 4
    assert peer.transport.closed_at == pytest.approx(4 * (KEEP_ALIVE_SECONDS - 1) + KEEP_ALIVE_SECONDS, abs=0.1)


@in_virtual_time
async def test_an_answer_that_takes_long_is_no_idle_connection():
    fast_path = FakeFastPath(at_once=False)
    peer = Peer(fast_path)

    peer.send(PREDICT % b"{}")
    await asyncio.sleep(LONG)
    assert peer.transport.closed_at is None
    fast_path.waiting.pop()()
    await asyncio.sleep(LONG)

    assert peer.transport.bodies == [b"{}"]
    assert peer.transport.closed_at == pytest.approx(LONG + KEEP_ALIVE_SECONDS, abs=0.1)


@in_virtual_time
async def test_a_caller_that_takes_nothing_of_its_answers_is_cut_off_after_the_read_timeout():
    peer = Peer()
    peer.transport.unsent_bytes = 100_000

    peer.connection.pause_writing()
    await asyncio.sleep(LONG)

    assert peer.transport.aborted_at == RECEIVE_SECONDS


@in_virtual_time
async def test_a_slow_reader_that_takes_something_in_time_is_not_cut_off():
    peer = Peer()
    peer.transport.unsent_bytes = 100_000
    peer.connection.pause_writing()

    while peer.transport.unsent_bytes:
        await asyncio.sleep(RECEIVE_SECONDS * 0.9)
        peer.transport.unsent_bytes -= 10_000
    peer.connection.resume_writing()
    await asyncio.sleep(LONG)

    assert peer.transport.aborted_at is None


@in_virtual_time
async def test_while_a_caller_takes_nothing_its_calls_go_through_asgi_which_waits():
    peer = Peer()
    peer.transport.unsent_bytes = 100_000
    peer.connection.pause_writing()

    peer.send(PREDICT % b"{}")
    await peer.settle()
    assert peer.transport.bodies == []
    peer.connection.resume_writing()
    await peer.settle()

    assert peer.transport.bodies == [b"{}"]


@pytest.mark.parametrize("field", [b"x-padding: " + b"x" * 1_000 + b"\r\n", b"x" * 1_000])
@in_virtual_time
async def test_a_head_without_end_is_refused_after_so_many_bytes(field):
    peer = Peer()
    peer.send(b"GET / HTTP/1.1\r\nhost: x\r\nx-one: ")

    sent = 0
    while peer.transport.closed_at is None:
        peer.send(field)
        sent += len(field)

    assert MAX_HEAD - 2_000 < sent < MAX_HEAD + 2_000
    assert peer.transport.written.startswith(b"HTTP/1.1 431 ")
    assert CLOSE in peer.transport.written


@in_virtual_time
async def test_of_many_pipelined_calls_a_turn_answers_what_it_may_parse_and_reading_pauses():
    peer = Peer()
    request = PREDICT % b"{}"

    peer.send(request * 1_000)
    in_the_first_turn, was_reading = len(peer.transport.bodies), peer.transport.reads
    await peer.settle()

    assert 0 < in_the_first_turn <= TURN_BYTES // len(request) + 1
    assert not was_reading
    assert len(peer.transport.bodies) == 1_000
    assert peer.transport.reads


@pytest.mark.parametrize("kind", KINDS)
@in_virtual_time
async def test_a_draining_connection_says_so_with_its_last_answer(kind):
    fast_path = FakeFastPath(at_once=False)
    peer = Peer(fast_path)
    peer.send((PREDICT % b"aa") + (kind % b"bb"))

    peer.connection.drain()
    while fast_path.waiting:
        fast_path.waiting.pop(0)()
        await peer.settle()

    assert peer.transport.bodies == [b"aa", b"bb"]
    assert peer.transport.written.count(CLOSE) == 1
    assert peer.transport.written.index(CLOSE) > peer.transport.written.index(b"aa")
    assert peer.transport.is_closing()


@in_virtual_time
async def test_a_connection_that_was_accepted_while_draining_answers_once():
    peer = Peer()
    peer.state[DRAINING] = True  # type: ignore[assignment]
    late = FakeTransport()
    connection = Connection(
        receive_seconds=RECEIVE_SECONDS,
        config=peer.connection.config,
        server_state=peer.server,
        app_state=peer.state,
        _loop=late.loop,
    )
    connection.connection_made(late)

    connection.data_received(PREDICT % b"{}")

    assert CLOSE in late.written
    assert late.is_closing()


@in_virtual_time
async def test_shutdown_closes_a_connection_only_when_no_byte_of_a_request_has_come():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer(held=ours)
        theirs.send(PREDICT % b"{}")

        peer.connection.shutdown()
        assert not peer.transport.is_closing()
        peer.send(ours.recv(1_000))

        assert CLOSE in peer.transport.written
        assert peer.transport.is_closing()


@in_virtual_time
async def test_shutdown_closes_a_connection_that_is_lost_and_was_not_told_so_yet():
    peer = Peer(held=None)  # an asyncio transport over TLS has no socket then

    peer.connection.shutdown()

    assert peer.transport.is_closing()


@in_virtual_time
async def test_a_connection_that_is_lost_leaves_no_timer():
    peer = Peer()
    peer.send((PREDICT % b"{}") + b"POST /")

    peer.connection.connection_lost(None)
    await asyncio.sleep(LONG)

    assert peer.transport.closed_at == 0.0  # by uvicorn, when it was lost
    assert peer.transport.aborted_at is None


@pytest.mark.parametrize("how", ["lost", "aborted"])
@in_virtual_time
async def test_requests_that_wait_for_a_turn_are_not_begun_once_their_connection_is_over(how):
    peer = Peer()
    problems: list[Any] = []
    peer.transport.loop.set_exception_handler(lambda _loop, context: problems.append(context))
    peer.send((PREDICT % b"{}") * 1_000)
    answered = len(peer.transport.bodies)

    if how == "lost":
        peer.connection.connection_lost(None)
    else:
        peer.transport.abort()  # as the slow-reader guard does
    await peer.settle()

    assert len(peer.transport.bodies) == answered < 1_000
    assert problems == []


@in_virtual_time
async def test_bytes_that_are_no_request_are_answered_400_and_the_connection_closed():
    peer = Peer()

    peer.send(b"what is this\r\n\r\n")

    assert peer.transport.written.startswith(b"HTTP/1.1 400 ")
    assert peer.transport.is_closing()
