"""Calls of the control plane, carried out beside the event loop that answers predictions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Generic, TypeVar

from understudy.errors import DeadlineExceeded, Overloaded

STAGE = "control"
P = TypeVar("P")
T = TypeVar("T")


class Desk(Generic[P]):
    """Carries out a few calls at a time, each in a thread and an event loop of its own.

    So a report may compute for seconds, and reading thousands of windows may take a while: predictions share with them
    the interpreter, but no event loop.

    Args:
        open_parts: Opens what one call works with.
        places: Calls at a time.
        wait_seconds: Longest time that a call waits for its turn.
        grace_seconds: What a call has to close its connections in, once its time is over.
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
        self._turns = asyncio.Semaphore(places)
        self._pool = ThreadPoolExecutor(places, thread_name_prefix=STAGE)
        self._running: set[asyncio.Task[object]] = set()

    async def carry_out(self, work: Callable[[P], Awaitable[T]], seconds: float) -> T:
        """Return what the work returned.

        Raises:
            Overloaded: Too many calls are before this one.
            DeadlineExceeded: It was not done after ``seconds``; what it changed until then stays.
        """
        async with self._turn():
            # A computation that cannot be interrupted keeps its thread when it is given up here; the next call waits
            # for the thread within its own time.
            done = asyncio.get_running_loop().run_in_executor(self._pool, self._run, work, seconds)
            try:
                async with asyncio.timeout(seconds + self._grace_seconds):
                    return await done
            except TimeoutError:
                raise DeadlineExceeded(STAGE, seconds) from None

    def close(self) -> None:
        """Break off what is under way: a process that ends waits for its threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for task in tuple(self._running):
            with suppress(RuntimeError):  # it ended in this moment, and its event loop with it
                task.get_loop().call_soon_threadsafe(task.cancel)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise Overloaded("too many calls of the control plane are under way") from None
        try:
            yield
        finally:
            self._turns.release()

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
