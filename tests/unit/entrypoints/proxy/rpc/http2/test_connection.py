"""A connection of the gRPC port, fed by hand: answers do not depend on how bytes are parted, and its end loses none."""

import asyncio
import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback.http2_server import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Frame,
    frame,
    number,
)
from worlds.http2_port import ECHO, WAIT, Answers, EchoPort, block_of, call, fields_of, message_of, setting

from understudy.adapters.http2.frames import FrameReader
from understudy.entrypoints.proxy.rpc.http2.connection import Http2Connection

GREETING = PREFACE + frame(SETTINGS)
LAST = 2**31 - 1


class Sent(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_ended = self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write_eof(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = True

    def frames(self) -> list[Frame]:
        return [Frame(*one) for one in FrameReader().cut(b"".join(self.writes))]

    def answers(self) -> Answers:
        found = Answers()
        for one in self.frames():
            found.take(one)
        return found


class Lone:
    """One connection, and what holds it."""

    def __init__(self) -> None:
        self.port = EchoPort()
        self.sent = Sent()
        self.lost_connections: list[Any] = []
        self.connection = Http2Connection(self, self.port.serving)
        self.connection.connection_made(self.sent)

    def lost(self, connection: Any) -> None:
        self.lost_connections.append(connection)

    def feed(self, *data: bytes) -> None:
        for one in data:
            self.connection.data_received(one)

    async def settled(self) -> None:
        """Go on until every task has gone as far as it can."""
        for _ in range(8):
            await asyncio.sleep(0)

    def close(self) -> None:
        self.connection.connection_lost(None)
        self.port.unread.close()


def parted(stream: int, content: bytes, places: tuple[int, ...]) -> bytes:
    """Return a call whose block and message come in several frames."""
    block = block_of(fields_of(ECHO, ("x-entity-id", f"e{stream}")))
    cut = len(block) // 2
    message = message_of(content)
    edges = sorted({0, len(message), *(place % (len(message) + 1) for place in places)})
    parts = [message[a:b] for a, b in pairwise(edges)]
    return b"".join((
        frame(HEADERS, PRIORITISED, stream, bytes(5) + block[:cut]),
        frame(CONTINUATION, 0, stream, block[cut : cut + 3]),
        frame(CONTINUATION, END_HEADERS, stream, block[cut + 3 :]),
        *(frame(DATA, PADDED, stream, b"\x03" + part + bytes(3)) for part in parts),
        frame(DATA, END_STREAM, stream),
    ))  # fmt: skip


BESIDE = (
    frame(PING, payload=bytes(8)),
    frame(WINDOW_UPDATE, 0, 0, number(1_000)),
    frame(PRIORITY, 0, 1, bytes(5)),
    frame(0x77, payload=b"abc"),
    frame(SETTINGS, payload=setting(3, 10)),
    b"",
)
CALLS = st.lists(
    st.tuples(st.integers(0, 12_000), st.lists(st.integers(0, 12_000), max_size=3).map(tuple), st.sampled_from(BESIDE)),
    min_size=1,
    max_size=4,
)


async def answers_to(data: bytes, places: list[int]) -> tuple[Any, Any]:
    lone = Lone()
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    try:
        for a, b in pairwise(edges):
            lone.feed(data[a:b])
            await asyncio.sleep(0)
        await lone.settled()
        found = lone.sent.answers()
        return found.fields, found.bodies
    finally:
        lone.close()


@pytest.mark.deep
@given(CALLS, st.lists(st.integers(0, 60_000), max_size=30))
def test_answers_are_the_same_wherever_the_bytes_are_parted(calls, places):
    data = GREETING + b"".join(
        parted(2 * n + 1, bytes([n]) * size, cuts) + beside for n, (size, cuts, beside) in enumerate(calls)
    )

    whole = asyncio.run(answers_to(data, []))

    assert asyncio.run(answers_to(data, places)) == whole
    assert whole[1] == {2 * n + 1: message_of(bytes([n]) * size) for n, (size, _, _) in enumerate(calls)}


PAYLOADS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([
        b"", bytes(4), bytes(5), bytes(8), number(1), number(LAST), setting(4, 0), setting(4, 100_000),
        block_of(fields_of()), block_of(fields_of(WAIT)), block_of(fields_of())[:20], message_of(b"x"),
        message_of(bytes(300))[:100], b"\0\x7f\xff\xff\xff", b"\x88", b"\x20" + block_of(fields_of()),
    ]),
)  # fmt: skip
ANY_FRAMES = st.lists(
    st.tuples(st.integers(0, 11), st.sampled_from([0, 1, 4, 5, 8, 9, 0x20, 0x25, 0x2C]), st.integers(0, 9), PAYLOADS),
    max_size=25,
)


async def left_by(frames: list[tuple[int, int, int, bytes]], *, leaves: bool) -> tuple[int, int, int, int]:
    """Return what a connection holds when it is over: bytes, answers, calls, and tasks."""
    lone, tasks = Lone(), len(asyncio.all_tasks())
    lone.feed(GREETING)
    for at, one in enumerate(frames):
        if leaves and at == len(frames) // 2:
            lone.connection.leave()
        lone.feed(frame(*one))
        await asyncio.sleep(0)
    await lone.settled()
    assert all(one.kind < 10 for one in lone.sent.frames())
    lone.close()
    await lone.settled()
    return lone.port.budget.held_bytes, len(lone.port.unread), lone.connection.calls, len(asyncio.all_tasks()) - tasks


@pytest.mark.deep
@given(ANY_FRAMES, st.booleans())
def test_any_frames_end_in_answers_or_in_an_end_and_nothing_is_left(frames, leaves):
    assert asyncio.run(left_by(frames, leaves=leaves)) == (0, 0, 0, 0)


@pytest.fixture
async def lone():
    found = Lone()
    yield found
    found.close()


async def test_the_answers_of_a_turn_are_one_write(lone):
    lone.feed(GREETING + b"".join(call(2 * n + 1) for n in range(20)))
    await lone.settled()

    assert lone.sent.answers().whole == {2 * n + 1 for n in range(20)}
    assert len([data for data in lone.sent.writes if b"grpc-status" in data]) == 1


async def test_calls_of_more_fields_than_a_turn_has_are_read_in_turns_and_all_answered(lone):
    calls = [call(2 * n + 1, b"%d" % n) for n in range(900)]
    data = GREETING + b"".join(calls)
    lone.feed(data[: len(data) // 2], data[len(data) // 2 :])  # the second one in spite of the pause

    assert lone.sent.is_paused
    assert 0 < lone.connection.calls < len(calls) // 2
    async with asyncio.timeout(10):
        while lone.sent.is_paused:
            await lone.settled()
    await lone.settled()
    assert lone.sent.answers().bodies == {2 * n + 1: message_of(b"%d" % n) for n in range(900)}


async def test_calls_that_were_sent_before_the_caller_read_of_the_end_are_answered_and_no_later_one(lone):
    lone.feed(GREETING + call(1, b"x", WAIT))
    lone.connection.leave()
    await lone.settled()
    told = [one for one in lone.sent.frames() if one.kind in (GOAWAY, PING)]
    lone.feed(call(3))
    await lone.settled()
    lone.feed(frame(PING, ACK, 0, told[1].payload), call(5))
    await lone.settled()

    assert [one.kind for one in told] == [GOAWAY, PING]
    assert number_of(told[0]) == (LAST, 0)
    last = [one for one in lone.sent.frames() if one.kind == GOAWAY][-1]
    assert number_of(last) == (3, 0)
    assert lone.sent.answers().whole == {3}
    assert not lone.sent.is_ended
    lone.port.open.set()
    await lone.settled()
    assert lone.sent.answers().whole == {1, 3}
    assert lone.sent.is_ended


def number_of(goaway: Frame) -> tuple[int, int]:
    last, code = struct.unpack(">II", goaway.payload[:8])
    return last, code


async def test_a_caller_that_greets_late_is_told_of_the_end_then(lone):
    lone.connection.leave()
    lone.feed(GREETING)
    await lone.settled()

    assert [one.kind for one in lone.sent.frames() if one.kind in (GOAWAY, PING)] == [GOAWAY, PING]


async def test_an_answer_goes_as_far_as_its_caller_takes_it_and_no_further(lone):
    lone.feed(PREFACE + frame(SETTINGS, payload=setting(4, 10)), call(1, b"a" * 100), call(3, b"b" * 4))
    await lone.settled()
    assert {stream: len(body) for stream, body in lone.sent.answers().bodies.items()} == {1: 10, 3: 9}
    assert lone.sent.answers().whole == {3}

    lone.feed(frame(WINDOW_UPDATE, 0, 1, number(90)))
    await lone.settled()
    assert len(lone.sent.answers().bodies[1]) == 100
    lone.feed(frame(WINDOW_UPDATE, 0, 1, number(5)))
    await lone.settled()

    assert lone.sent.answers().bodies[1] == message_of(b"a" * 100)
    assert lone.sent.answers().whole == {1, 3}
    assert len(lone.port.unread) == 0


async def test_a_connection_whose_socket_is_full_sends_nothing_until_it_takes_more(lone):
    lone.feed(GREETING)
    await lone.settled()
    lone.connection.pause_writing()
    lone.feed(call(1), call(3))
    await lone.settled()
    assert lone.sent.answers().whole == set()
    assert len(lone.port.unread) == 2

    lone.connection.resume_writing()
    await lone.settled()

    assert lone.sent.answers().whole == {1, 3}
    assert len(lone.port.unread) == 0


async def test_a_call_that_is_given_up_is_ended_and_the_next_one_is_answered(lone):
    lone.feed(GREETING + call(1, b"x", WAIT))
    await lone.settled()
    lone.feed(frame(RST_STREAM, 0, 1, number(8)), call(3))
    await lone.settled()
    lone.port.open.set()
    await lone.settled()

    assert lone.sent.answers().whole == {3}
    assert lone.connection.calls == 0


async def test_of_a_long_message_the_caller_is_allowed_what_it_announced_and_no_more(lone):
    message = message_of(bytes(200_000))
    lone.feed(GREETING + frame(HEADERS, END_HEADERS, 1, block_of(fields_of())) + frame(DATA, 0, 1, message[:16_384]))
    await lone.settled()
    allowed = sum(int.from_bytes(one.payload) for one in lone.sent.frames() if (one.kind, one.stream) == (8, 1))

    assert len(message) <= 65_535 + allowed <= len(message) + 2 * 16_384
    for at in range(16_384, len(message), 16_384):
        lone.feed(frame(DATA, 0, 1, message[at : at + 16_384]))
    lone.feed(frame(DATA, END_STREAM, 1))
    await lone.settled()
    assert lone.port.budget.held_bytes == 0
