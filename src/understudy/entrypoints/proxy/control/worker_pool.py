"""The control plane's worker pool: its calls run beside the event loop that answers predictions, a few at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Generic, TypeVar

from understudy.errors import DeadlineExceeded, Overloaded

STAGE = "control"
P = TypeVar("P")
T = TypeVar("T")


class WorkerPool(Generic[P]):
    """A bulkhead: carries out a bounded number of calls at a time, each in a thread with an event loop of its own.

    A report may compute for seconds, or read thousands of windows: it shares the interpreter with predictions, but not
    their event loop.

    Args:
        open_parts: Opens what one call works with.
        places: Calls at a time.
        wait_seconds: Longest time that a call waits for a place.
        grace_seconds: Time that a call has after its deadline to close its connections.
    """

    def __init__(
        self,
        open_parts: Callable[[], AbstractAsyncContextManager[P]],
        places: int,
        *,
        wait_seconds: float = 2.0,
        grace_seconds: float = 1.0,
    ) -> None:
        self._open_parts = open_parts
        self._wait_seconds = wait_seconds
        self._grace_seconds = grace_seconds
        self._places = asyncio.Semaphore(places)
        self._threads = ThreadPoolExecutor(places, thread_name_prefix=STAGE)
        self._running: set[asyncio.Task[object]] = set()

    async def carry_out(self, work: Callable[[P], Awaitable[T]], seconds: float) -> T:
        """Return what the work returned.

        Raises:
            Overloaded: No place became free in time.
            DeadlineExceeded: The work was not done after ``seconds``; what it changed until then stays.
        """
        async with self._place():
            # Work that cannot be interrupted keeps its thread when its call is given up here; the next call waits for
            # the thread within its own deadline.
            done = asyncio.get_running_loop().run_in_executor(self._threads, self._run, work, seconds)
            try:
                async with asyncio.timeout(seconds + self._grace_seconds):
                    return await done
            except TimeoutError:
                raise DeadlineExceeded(STAGE, seconds) from None

    def close(self) -> None:
        """Cancel the calls under way: a process that exits waits for its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for task in tuple(self._running):
            with suppress(RuntimeError):  # it ended in this moment, and its event loop with it
                task.get_loop().call_soon_threadsafe(task.cancel)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded("too many calls of the control plane are under way") from None
        try:
            yield
        finally:
            self._places.release()

    def _run(self, work: Callable[[P], Awaitable[T]], seconds: float) -> T:
        return asyncio.run(self._within(work, seconds))

    async def _within(self, work: Callable[[P], Awaitable[T]], seconds: float) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with asyncio.timeout(seconds), self._open_parts() as parts:
                return await work(parts)
        except TimeoutError:
            raise DeadlineExceeded(STAGE, seconds) from None
        finally:
            self._running.discard(task)
