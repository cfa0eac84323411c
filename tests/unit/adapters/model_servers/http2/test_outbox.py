"""The sending side of a connection: whose turn it is, and what counts as work of the server's."""

import asyncio

from understudy.adapters.http2.frames import (
    DATA,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    FrameReader,
)
from understudy.adapters.model_servers.http2.call import UnaryCall
from understudy.adapters.model_servers.http2.outbox import Outbox


class Sent(asyncio.WriteTransport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data


def call_of(size: int) -> UnaryCall:
    return UnaryCall(b"", b"", bytes(size), 10.0, waits=False)


def outbox_of(parts: list[None], first_number: int = 1) -> tuple[Outbox, Sent]:
    outbox, sent = Outbox(lambda: parts.append(None), first_number), Sent()
    outbox.attach(sent)
    return outbox, sent


async def test_the_last_number_that_a_call_which_waited_has_got_is_the_last():
    outbox, sent = outbox_of([], 2**31 - 3)
    outbox.settle({MAX_CONCURRENT_STREAMS: 1})
    for _ in range(3):
        outbox.start(call_of(1))

    outbox.forget(2**31 - 3)
    outbox.forget(2**31 - 1)
    outbox.start(call_of(1))

    assert (outbox.is_used_up, len(outbox.pending), outbox.streams) == (True, 2, {})
    assert {number for kind, _, number, _ in FrameReader().cut(sent.data) if kind == DATA} == {2**31 - 3, 2**31 - 1}


async def test_windows_that_grow_by_a_byte_are_no_work():
    parts: list[None] = []
    outbox, _ = outbox_of(parts)
    outbox.settle({INITIAL_WINDOW_SIZE: 0})
    outbox.start(call_of(1_000))

    for _ in range(500):
        outbox.grow(outbox.streams[1], 1)
    assert parts == []

    outbox.grow(outbox.streams[1], 1_000)
    assert parts == [None]
