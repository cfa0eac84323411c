"""Answers that nobody reads: a connection on which nothing of them goes out for too long is broken off."""

import asyncio


class UnreadWatch:
    """Looks at what is unsent of a connection while something is.

    Args:
        transport: The connection's.
        loop: Its event loop.
        seconds: How long nothing of it may go out.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        """What there was when that was looked at last."""

    def begin(self) -> None:
        """Watch from now on, if there is anything unsent."""
        self._unsent_bytes = self._transport.get_write_buffer_size()
        if self._unsent_bytes and self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if 0 < self._unsent_bytes <= self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self.begin()
