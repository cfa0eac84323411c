"""The control plane's worker pool: bounded in calls and in time, and beside the event loop of predictions."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from understudy.entrypoints.proxy.control.worker_pool import WorkerPool
from understudy.errors import DeadlineExceeded, NotRegistered, Overloaded


class Opened:
    """Counts what is open."""

    def __init__(self) -> None:
        self.now = self.ever = 0

    @asynccontextmanager
    async def parts(self) -> AsyncIterator[str]:
        self.now += 1
        self.ever += 1
        try:
            yield "parts"
        finally:
            self.now -= 1


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def a_pool(opened):
    pool = WorkerPool(opened.parts, 1)
    yield pool
    pool.close()


async def test_a_call_works_with_parts_of_its_own_and_leaves_nothing_open(a_pool, opened):
    async def work(parts: str) -> str:
        return f"{parts} {opened.now}"

    assert opened.ever == 0
    assert [await a_pool.carry_out(work, 1), await a_pool.carry_out(work, 1)] == ["parts 1", "parts 1"]
    assert (opened.now, opened.ever) == (0, 2)


@pytest.mark.deep
async def test_the_event_loop_turns_while_a_call_computes(a_pool):
    ticks = 0

    async def compute(_: str) -> tuple[int, int]:
        before = ticks
        time.sleep(0.5)  # noqa: ASYNC251 - as a report does
        return threading.get_ident(), ticks - before

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    thread, meanwhile = await a_pool.carry_out(compute, 5)
    ticking.cancel()

    assert thread != threading.get_ident()
    assert meanwhile >= 3


async def test_a_call_ends_at_its_deadline_with_everything_closed(a_pool, opened):
    async def hang(_: str) -> None:
        await asyncio.sleep(60)

    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="100 ms were allowed; time ran out in stage 'control'"):
        await a_pool.carry_out(hang, 0.1)

    assert time.monotonic() - began < 5
    assert (opened.now, opened.ever) == (0, 1)


async def test_a_computation_that_cannot_be_interrupted_is_given_up_in_time(opened):
    pool = WorkerPool(opened.parts, 1, grace_seconds=0.05)
    released = threading.Event()

    async def compute(_: str) -> None:
        released.wait(10)

    began = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        await pool.carry_out(compute, 0.05)

    assert time.monotonic() - began < 5
    released.set()
    pool.close()


async def test_more_calls_than_places_wait_for_a_bounded_time(opened):
    pool = WorkerPool(opened.parts, 1, wait_seconds=0.1)
    inside, released = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def hold(_: str) -> None:
        loop.call_soon_threadsafe(inside.set)
        released.wait(60)

    first = asyncio.create_task(pool.carry_out(hold, 60))
    await inside.wait()
    with pytest.raises(Overloaded):
        await pool.carry_out(hold, 5)
    released.set()

    assert opened.ever == 1
    await first
    pool.close()


async def test_an_error_leaves_the_desk_as_it_is_and_the_next_call_is_served(a_pool, opened):
    async def refuse(_: str) -> None:
        raise NotRegistered("there is no such model")

    async def serve(_: str) -> str:
        return "served"

    with pytest.raises(NotRegistered):
        await a_pool.carry_out(refuse, 1)

    assert await a_pool.carry_out(serve, 1) == "served"
    assert opened.now == 0


async def test_closing_breaks_off_what_is_under_way_and_closes_its_parts(a_pool, opened):
    inside = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hang(_: str) -> None:
        loop.call_soon_threadsafe(inside.set)
        await asyncio.sleep(60)

    call = asyncio.create_task(a_pool.carry_out(hang, 60))
    await inside.wait()
    began = time.monotonic()
    a_pool.close()

    await asyncio.wait([call])
    assert time.monotonic() - began < 5
    assert call.cancelled()
    assert opened.now == 0
