"""Bulkhead of threads: one kind of long work runs beside the event loop, a few pieces at a time."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from understudy.errors import Overloaded

P = ParamSpec("P")
T = TypeVar("T")


class ThreadBulkhead:
    """Runs one kind of work in the event loop's threads, which all kinds share.

    Args:
        places: Pieces of work at a time.
        wait_seconds: Longest wait for a place; ``None``: as long as the caller of :meth:`run` waits.
        when_full: What the error says when that is over.
    """

    def __init__(
        self, places: int, *, wait_seconds: float | None = None, when_full: str = "too much work waits for a thread"
    ) -> None:
        self._free = asyncio.Semaphore(places)
        self._wait_seconds = wait_seconds
        self._when_full = when_full

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what ``work`` returns, in a thread; raises what it raises.

        A thread cannot be interrupted: when this call is cancelled, the work goes on and keeps its place until it ends.

        Raises:
            Overloaded: No place was free in time (load shedding).
        """
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(self._when_full) from None
        working = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
        working.add_done_callback(self._release)
        try:
            return await asyncio.shield(working)
        finally:
            # An error references this frame, and the future references the error: a cycle that would keep the work's
            # arguments, and all that was made of them, until the garbage collector runs.
            del working

    def _release(self, working: "asyncio.Future[T]") -> None:
        self._free.release()
        if not working.cancelled():
            working.exception()  # retrieved, also when the caller has gone
