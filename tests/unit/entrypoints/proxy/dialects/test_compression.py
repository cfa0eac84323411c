"""What is inflated on the event loop, and what in a thread."""

import asyncio
import gzip
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.entrypoints.proxy.dialects.compression import INLINE_DEFLATED_BYTES, inflated_beside
from understudy.errors import BodyTooLarge, Overloaded

LIMIT_BYTES = 1_048_576
BOMB = gzip.compress(bytes(2 * LIMIT_BYTES), 9)


@asynccontextmanager
async def a_full_pool() -> AsyncIterator[ThreadBulkhead]:
    """Give a pool whose one thread is busy, and for which nothing waits."""
    pool, began, done = ThreadBulkhead(1, wait_seconds=0), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        done.wait(10)

    occupied = asyncio.ensure_future(pool.run(work))
    try:
        await asyncio.to_thread(began.wait, 10)
        yield pool
    finally:
        done.set()
        await occupied


async def test_a_bomb_is_never_inflated_on_the_event_loop_however_short_it_is():
    assert len(BOMB) < INLINE_DEFLATED_BYTES

    async with a_full_pool() as pool:
        with pytest.raises(Overloaded):
            await inflated_beside(pool, BOMB, b"gzip", LIMIT_BYTES)


async def test_a_short_body_waits_for_no_thread():
    async with a_full_pool() as pool:
        assert await inflated_beside(pool, gzip.compress(b"[1, 2]"), b"gzip", LIMIT_BYTES) == b"[1, 2]"


async def test_what_a_thread_inflates_ends_as_on_the_event_loop():
    pool, whole = ThreadBulkhead(1), bytes(LIMIT_BYTES)

    with pytest.raises(BodyTooLarge, match=str(LIMIT_BYTES)):
        await inflated_beside(pool, BOMB, b"gzip", LIMIT_BYTES)
    assert await inflated_beside(pool, gzip.compress(whole, 9), b"gzip", LIMIT_BYTES) == whole


async def test_where_a_body_may_be_short_alone_a_bomb_is_refused_at_once():
    async with a_full_pool() as pool:
        with pytest.raises(BodyTooLarge):
            await inflated_beside(pool, BOMB, b"gzip", 1_024)
