"""Long bodies are read beside the event loop, few at a time, and nobody waits long for a turn."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from understudy.errors import Overloaded

T = TypeVar("T")

TURNS = 2
"""Bodies that are read at once; there are as many threads."""
WAIT_SECONDS = 1.0
"""Longest wait for a turn. A body of 1 MiB that is hostile takes a tenth of a second."""


class BodyParserPool:
    """Takes turns at reading.

    Args:
        turns: Bodies that are read at once.
        wait_seconds: Longest wait for a turn.
    """

    def __init__(self, turns: int = TURNS, wait_seconds: float = WAIT_SECONDS) -> None:
        self._turns = asyncio.Semaphore(turns)
        self._wait_seconds = wait_seconds

    async def read(self, parse: Callable[[bytes], T], body: bytes) -> T:
        """Return what ``parse`` makes of a body, in a thread; raises what it raises.

        Raises:
            Overloaded: There was no turn in time.
        """
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._turns.acquire()
        except TimeoutError:
            raise Overloaded("too many long bodies wait to be read") from None
        reading = asyncio.ensure_future(asyncio.to_thread(parse, body))
        # The turn is over when the thread is done, not when a caller who waits for it goes away.
        reading.add_done_callback(self._end_turn)
        try:
            return await asyncio.shield(reading)
        finally:
            # An error knows this frame, and the reading knows the error: a circle that would keep the body, and all
            # that was made of it, until somebody looks for such circles.
            del reading

    def _end_turn(self, reading: "asyncio.Future[T]") -> None:
        self._turns.release()
        if not reading.cancelled():
            reading.exception()  # seen, also when its caller has gone
