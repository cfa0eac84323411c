"""The backlog of a connection, by itself: what it gives back when, and whether the transport reads meanwhile."""

import asyncio
from collections import deque

from virtual_time import in_virtual_time

from understudy.entrypoints.proxy.server.backpressure import Backlog


class Reading(asyncio.Transport):
    """A transport that only knows whether it reads, and whether it closes."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.closing = True, False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing


def a_backlog(pipeline: deque[str] | None = None) -> tuple[Backlog, Reading]:
    transport = Reading()
    return Backlog(transport, asyncio.get_running_loop(), deque() if pipeline is None else pipeline), transport


@in_virtual_time
async def test_bytes_are_given_back_together_in_the_next_turn_and_then_reading_goes_on():
    backlog, transport = a_backlog()
    received: list[bytes] = []

    backlog.add(b"ab")
    backlog.plan_turn(received.append)
    backlog.add(b"cd")
    backlog.plan_turn(received.append)
    backlog.resume_reading()
    at_first = list(received), transport.reads
    await asyncio.sleep(0)

    assert at_first == ([], False)
    assert (received, transport.reads) == ([b"abcd"], True)


@in_virtual_time
async def test_while_parsed_requests_wait_for_answers_nothing_is_given_back():
    pipeline = deque(["a request"])
    backlog, transport = a_backlog(pipeline)
    received: list[bytes] = []

    backlog.add(b"ab")
    backlog.plan_turn(received.append)
    await asyncio.sleep(1)
    assert (received, transport.reads) == ([], False)
    pipeline.clear()
    backlog.plan_turn(received.append)
    await asyncio.sleep(0)

    assert (received, transport.reads) == ([b"ab"], True)


@in_virtual_time
async def test_what_the_turn_leaves_waits_for_a_further_one():
    backlog, transport = a_backlog()
    received: list[bytes] = []

    def receive(data: bytes) -> None:
        received.append(data[:2])
        if len(data) > 2:
            backlog.add(data[2:])
            backlog.plan_turn(receive)

    backlog.add(b"abcd")
    backlog.plan_turn(receive)
    await asyncio.sleep(0)
    assert (received, transport.reads) == ([b"ab"], False)
    await asyncio.sleep(0)

    assert (received, transport.reads) == ([b"ab", b"cd"], True)


@in_virtual_time
async def test_of_a_connection_that_closes_nothing_more_is_parsed():
    backlog, transport = a_backlog()
    received: list[bytes] = []

    backlog.add(b"ab")
    backlog.plan_turn(received.append)
    transport.closing = True
    await asyncio.sleep(0)

    assert received == []
    assert not transport.reads
