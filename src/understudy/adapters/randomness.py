"""Random bytes from the operating system, fetched in large pieces."""

import os

_PIECE_BYTES = 4_096


class RandomBytes:
    """Gives random bytes that nobody can guess, each of them once.

    A system call for each request costs 2 µs twice; one for 4 KiB serves 150 requests. Made after a fork, since two
    processes with one piece would give the same bytes.
    """

    def __init__(self) -> None:
        self._piece = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        """Return ``count`` bytes, at most 4,096."""
        start = self._used
        self._used = end = start + count
        if end > len(self._piece):
            self._piece = os.urandom(_PIECE_BYTES)
            self._used = end = count
            start = 0
        return self._piece[start:end]

    def bits(self, count: int) -> int:
        """Return a number of ``count`` random bits."""
        size = (count + 7) // 8
        return int.from_bytes(self.take(size)) >> (size * 8 - count)

    def hex(self, count: int) -> str:
        """Return ``count`` bytes as hex digits."""
        return self.take(count).hex()
