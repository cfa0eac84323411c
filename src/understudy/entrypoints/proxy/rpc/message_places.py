"""Messages on their way: how many a process waits for at a time, and which give way.

gRPC compares a message with its bound once all of it has come, and holds what has come of it until then, whatever
length it announced. So a place is held from the first look for a message to its end; without one, a call's caller may
send what the stream's window takes, and no more.
"""

import asyncio
from collections.abc import Callable
from itertools import islice

from understudy.entrypoints.proxy.rpc.incoming import Context
from understudy.entrypoints.proxy.server.body_budget import LATE_SECONDS, no_room
from understudy.errors import RequestTimedOut


class MessagePlaces:
    """Reads messages, so many at a time.

    Where all places are taken, messages that have been coming for :data:`.LATE_SECONDS` or more give way, and of the
    calls that wait for a place the newest has it first (LIFO): callers that trickle lose it to those that send.

    Args:
        places: Messages at a time.
        now: The event loop's clock.
    """

    def __init__(self, places: int, now: Callable[[], float]) -> None:
        self._places = places
        self._now = now
        self._coming: dict[asyncio.Timeout, float] = {}
        """When each began to come, the oldest first."""
        self._waiting: list[asyncio.Future[None]] = []

    async def read(self, context: Context, seconds: float) -> object:
        """Return a call's next message, or gRPC's sign that there is none.

        Raises:
            RequestTimedOut: It was not complete after ``seconds``.
            Overloaded: It gave way to others, or the process is short of memory.
        """
        due = self._now() + seconds
        time = asyncio.timeout_at(due)
        try:
            async with time:
                await self._place()
                self._coming[time] = self._now()
                try:
                    return await context.read()
                finally:
                    del self._coming[time]
                    self._wake()
        except TimeoutError:
            if time.when() != due:
                raise no_room("messages") from None
            raise RequestTimedOut(f"the message was not complete after {seconds:g} s") from None

    def end_all(self) -> None:
        """Have all messages that are on their way give way at once: the process is short of memory."""
        for time in self._coming:
            _end_at(time, self._now())

    async def _place(self) -> None:
        while len(self._coming) >= self._places:
            for time, began in islice(self._coming.items(), len(self._waiting) + 1):
                _end_at(time, began + LATE_SECONDS)
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:  # it was woken, and gives up at that moment: the place is another one's
                    self._wake()
                raise

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return


def _end_at(time: asyncio.Timeout, when: float) -> None:
    """Bring a time-out forward, if it has not come yet."""
    if not time.expired() and when < (time.when() or 0.0):
        time.reschedule(when)
