"""Slow-reader guard: aborts a connection whose caller takes none of its answers (slow-loris on the reading side)."""

import asyncio
import struct
import sys
import termios
from contextlib import suppress
from fcntl import ioctl

from understudy.entrypoints.proxy.server.timeouts import Timeout


class SlowReaderGuard(Timeout):
    """Checks a connection's unsent bytes while there are any.

    Args:
        transport: The connection's.
        loop: Its event loop.
        seconds: Longest time in which the caller may take none of them.
    """

    __slots__ = ("_transport", "_unsent_bytes")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        super().__init__(loop, seconds, transport.abort)
        self._transport = transport
        self._unsent_bytes = 0
        """At the last check."""

    def begin(self) -> None:
        """Watch from now on, if anything is unsent."""
        self._unsent_bytes = self._unsent()
        if self._unsent_bytes and self.timer is None:
            self.timer = self._loop.call_later(self._seconds, self._check)

    def close(self) -> None:
        """Close the connection once what is unsent is sent, and watch that."""
        if not self._transport.is_closing():
            self._transport.close()
        self.begin()

    def _check(self) -> None:
        self.timer = None
        if 0 < self._unsent_bytes <= self._unsent():
            self._on_timeout()
        else:
            self.begin()

    def _unsent(self) -> int:
        """Return the bytes in the process's own buffer and, while there are any, those that the caller has not taken.

        The kernel takes more from the process only once a third of its own buffer is free. That is over a megabyte, for
        which a slow reader needs seconds: the process's own buffer alone would not show that the caller reads.
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
