"""A connection's read timeouts: against slow-loris callers, and against connections that are kept for nothing."""

import asyncio
from collections.abc import Callable

from understudy.serving.upstream.row_deadlines import TIMER_SECONDS


class Timeout:
    """One timer of a connection.

    Args:
        loop: The connection's event loop.
        seconds: Longest time.
        on_timeout: Ends the connection.
    """

    __slots__ = ("_loop", "_on_timeout", "_seconds", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._on_timeout = on_timeout
        self.timer: asyncio.TimerHandle | None = None
        """While it runs."""

    def stop(self) -> None:
        """Stop the timer: what it waits for has come, or the connection is over."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReadTimeout(Timeout):
    """Bounds the time from a request's first byte until its head is complete, however slow the bytes (slow-loris)."""

    __slots__ = ()

    @property
    def began_at(self) -> float | None:
        """When the request's first byte came, in the event loop's time; ``None`` while nothing is waited for."""
        return None if self.timer is None else self.timer.when() - self._seconds

    def start(self) -> None:
        """Start the clock, unless it runs."""
        if self.timer is None:
            self.timer = self._loop.call_later(self._seconds, self._on_timeout)


class KeepAliveTimeout(Timeout):
    """Closes a connection that had no request for too long. One timer serves many requests: it checks when it fires."""

    __slots__ = ("idle_since",)

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, on_timeout: Callable[[], None]) -> None:
        super().__init__(loop, seconds, on_timeout)
        self.idle_since: float | None = None
        """In the event loop's time; ``None`` while there is a request."""

    def begin(self) -> None:
        """Wait for the next request, or for the first one, from now on."""
        self.idle_since = self._loop.time()
        if self.timer is None:
            self.timer = self._loop.call_later(self._seconds, self._check)

    def pause(self) -> None:
        """Bytes have come: wait no more. The timer goes on, and finds out when it fires."""
        self.idle_since = None

    def _check(self) -> None:
        self.timer = None
        idle_seconds = self._loop.time() - self.idle_since if self.idle_since is not None else 0.0
        left = self._seconds - idle_seconds
        if left > TIMER_SECONDS:
            self.timer = self._loop.call_later(left, self._check)
        else:
            self._on_timeout()
