"""Answers that nobody reads: a connection on which nothing of them goes out for too long is broken off."""

import asyncio
import struct
import sys
import termios
from contextlib import suppress
from fcntl import ioctl


class SlowReaderGuard:
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
        self._unsent_bytes = self._unsent()
        if self._unsent_bytes and self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if 0 < self._unsent_bytes <= self._unsent():
            self._transport.abort()
        else:
            self.begin()

    def _unsent(self) -> int:
        """Return how much is unsent here, and while there is any how much the other end has not taken of the rest.

        The kernel takes more only once a third of its own buffer is free. That is over a megabyte, for which somebody
        who reads slowly needs seconds.
        """
        here = self._transport.get_write_buffer_size()
        return here and here + _unacknowledged(self._transport)


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Return the bytes that the kernel holds for the other end; 0 where it does not say."""
    held = transport.get_extra_info("socket")
    if held is None or sys.platform != "linux":
        return 0
    with suppress(OSError, ValueError):  # closed meanwhile
        (count,) = struct.unpack("i", ioctl(held.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(count)
    return 0
