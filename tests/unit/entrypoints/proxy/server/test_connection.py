"""A connection through a fake transport in virtual time: timeouts to the second."""

import asyncio
import socket
from typing import Any

import pytest
from virtual_time import in_virtual_time
from worlds.connection import (
    CLOSE,
    KEEP_ALIVE_SECONDS,
    KINDS,
    LONG,
    PLAIN,
    PREDICT,
    RECEIVE_SECONDS,
    FakeFastPath,
    FakeTransport,
    Peer,
)

from understudy.entrypoints.proxy.api.request_id import RequestIdMiddleware
from understudy.entrypoints.proxy.server.backpressure import TURN_BYTES
from understudy.entrypoints.proxy.server.connection import DRAINING, MAX_HEAD, Connection
from understudy.entrypoints.proxy.server.head_rules import HeadRules


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


class Untraced:
    """A handler of predict calls, as far as a request without a defect needs one."""

    tracer = None


@in_virtual_time
async def test_a_request_that_is_let_go_as_its_connection_is_lost_is_no_error_of_the_server(caplog):
    lost, begun = asyncio.Event(), []

    async def writes_late(scope: Any, _receive: Any, _send: Any) -> None:
        begun.append(scope["path"])
        await lost.wait()
        raise RuntimeError("the handler is closed")  # as uvloop says of a connection that was reset

    identified = RequestIdMiddleware(writes_late, Untraced, lambda: "a" * 32)  # type: ignore[arg-type]  # all it asks for

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await identified(scope, receive, send)

    peer = Peer(app=app)
    problems: list[Any] = []
    peer.transport.loop.set_exception_handler(lambda _loop, context: problems.append(context))
    peer.send(PLAIN % b"{}" + PLAIN % b"{}")
    await peer.settle()

    peer.transport.abort()
    peer.connection.connection_lost(ConnectionResetError())
    lost.set()
    await peer.settle()

    assert begun == ["/"]  # the second waits for the first one's answer
    assert [record.getMessage() for record in caplog.records] == []
    assert problems == []
    assert peer.transport.written == b""


@in_virtual_time
async def test_bytes_that_are_no_request_are_answered_400_and_the_connection_closed():
    peer = Peer()

    peer.send(b"what is this\r\n\r\n")

    assert peer.transport.written.startswith(b"HTTP/1.1 400 ")
    assert peer.transport.is_closing()


HOSTS = HeadRules(host_names=("known",), refuses_pages=True)
CALL = b"POST /v1/models/m/predict HTTP/1.1\r\n%bcontent-type: %b\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "head",
    [
        (b"", b"application/json"),
        (b"host: \r\n", b"application/json"),
        (b"host: unknown\r\n", b"application/json"),
        (b"host: known\r\nsec-fetch-site: cross-site\r\n", b"text/plain"),
    ],
)
@pytest.mark.parametrize("calls_before", [0, 1])
@in_virtual_time
async def test_a_head_that_breaks_a_rule_is_not_taken_whatever_the_connections_last_one_was(head, calls_before):
    peer = Peer(rules=HOSTS)
    for _ in range(calls_before):
        peer.send(CALL % (b"host: known\r\n", b"application/json"))

    peer.send(CALL % head)

    assert len(peer.transport.bodies) == calls_before
