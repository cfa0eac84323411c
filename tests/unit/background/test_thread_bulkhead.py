"""Long work waits for a place, and not for ever."""

import asyncio
import threading

import pytest

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.errors import MalformedBody, Overloaded


class Held:
    """A reader that reads when it is let go, and counts who reads at once."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.reading = self.most = 0
        self._lock = threading.Lock()

    def read(self, body: bytes) -> int:
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        assert self.go.wait(20)
        with self._lock:
            self.reading -= 1
        return len(body)


async def until_reading(held: Held, count: int) -> None:
    async with asyncio.timeout(20):
        while held.reading < count:  # noqa: ASYNC110 - it is in a thread
            await asyncio.sleep(0.005)


async def test_so_many_are_read_at_once_and_the_others_in_their_turn():
    held, bodies = Held(), ThreadBulkhead(2, wait_seconds=20)

    reads = [asyncio.create_task(bodies.run(held.read, b"x" * size)) for size in range(1, 6)]
    await until_reading(held, 2)
    held.go.set()

    assert await asyncio.gather(*reads) == [1, 2, 3, 4, 5]
    assert held.most == 2


async def test_a_job_that_has_no_turn_in_time_is_refused_and_takes_no_other_job_s_place():
    held, bodies = Held(), ThreadBulkhead(1, wait_seconds=0.05)
    first = asyncio.create_task(bodies.run(held.read, b"x"))
    await until_reading(held, 1)

    with pytest.raises(Overloaded):
        await bodies.run(held.read, b"xx")
    held.go.set()

    assert await first == 1
    assert await bodies.run(held.read, b"xxx") == 3


async def test_a_caller_who_goes_away_keeps_the_turn_until_the_thread_is_done():
    held, bodies = Held(), ThreadBulkhead(1, wait_seconds=0.05)
    gone = asyncio.create_task(bodies.run(held.read, b"x"))
    await until_reading(held, 1)

    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    with pytest.raises(Overloaded):
        await bodies.run(held.read, b"xx")
    held.go.set()

    async with asyncio.timeout(20):
        while held.reading:  # noqa: ASYNC110 - it is in a thread
            await asyncio.sleep(0.005)
    assert await bodies.run(held.read, b"xxx") == 3


async def test_what_is_wrong_with_a_body_is_told_and_the_turn_is_over():
    bodies = ThreadBulkhead(1, wait_seconds=5)

    def refuse(_body: bytes) -> int:
        raise MalformedBody("no JSON")

    for _ in range(2):
        with pytest.raises(MalformedBody):
            await bodies.run(refuse, b"x")
