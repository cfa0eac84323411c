"""Random bytes from the operating system, fetched in blocks."""

import os

_BLOCK_BYTES = 4_096


class RandomBytes:
    """Cryptographically random bytes, each used once.

    Two system calls for each request cost 4 µs; one for 4 KiB serves 150 requests. Create it after a fork: two
    processes with one block would return the same bytes.
    """

    def __init__(self) -> None:
        self._block = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        """Return ``count`` bytes, at most 4,096."""
        start = self._used
        self._used = end = start + count
        if end > len(self._block):
            self._block = os.urandom(_BLOCK_BYTES)
            self._used = end = count
            start = 0
        return self._block[start:end]

    def bits(self, count: int) -> int:
        """Return a number of ``count`` random bits."""
        size = (count + 7) // 8
        return int.from_bytes(self.take(size)) >> (size * 8 - count)

    def hex(self, count: int) -> str:
        """Return ``count`` bytes as hex digits."""
        return self.take(count).hex()
