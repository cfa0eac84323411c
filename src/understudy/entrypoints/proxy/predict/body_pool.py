"""Body parser pool: a bulkhead that parses long bodies in threads, few at a time and with a bounded wait."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from understudy.errors import Overloaded

T = TypeVar("T")

MAX_PARSING = 2
"""Bodies that are parsed at once; there are as many threads."""
WAIT_SECONDS = 1.0
"""Longest wait for a thread. A hostile body of 1 MiB takes a tenth of a second."""


class BodyParserPool:
    """Parses bodies in threads.

    Args:
        max_parsing: Bodies that are parsed at once.
        wait_seconds: Longest wait for a thread.
    """

    def __init__(self, max_parsing: int = MAX_PARSING, wait_seconds: float = WAIT_SECONDS) -> None:
        self._free = asyncio.Semaphore(max_parsing)
        self._wait_seconds = wait_seconds

    async def parse(self, parse: Callable[[bytes], T], body: bytes) -> T:
        """Return what ``parse`` makes of a body, in a thread; raises what it raises.

        Raises:
            Overloaded: No thread was free in time (load shedding).
        """
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded("too many long bodies wait to be parsed") from None
        parsing = asyncio.ensure_future(asyncio.to_thread(parse, body))
        # The place is free when the thread is done, not when the caller disconnects.
        parsing.add_done_callback(self._release)
        try:
            return await asyncio.shield(parsing)
        finally:
            # An error references this frame, and the future references the error: a cycle that would keep the body, and
            # all that was made of it, until the garbage collector runs.
            del parsing

    def _release(self, parsing: "asyncio.Future[T]") -> None:
        self._free.release()
        if not parsing.cancelled():
            parsing.exception()  # retrieved, also when its caller has disconnected
