"""Random numbers from the operating system, fetched in blocks."""

import os
from collections.abc import Iterator

_BLOCK = 400
"""Numbers that are fetched at once: two system calls for each request would cost 4 µs."""


def random_numbers(bits: int) -> Iterator[int]:
    """Yield numbers of so many cryptographically random bits without end, each drawn once.

    Take the first one after a fork: two processes with one block would draw the same numbers.
    """
    size = (bits + 7) // 8
    spare = size * 8 - bits
    while True:
        block = os.urandom(size * _BLOCK)
        for start in range(0, len(block), size):
            yield int.from_bytes(block[start : start + size]) >> spare


def random_hex(count: int) -> Iterator[str]:
    """Yield so many random bytes as hex digits, without end; as :func:`random_numbers`."""
    while True:
        digits = os.urandom(count * _BLOCK).hex()
        for start in range(0, len(digits), 2 * count):
            yield digits[start : start + 2 * count]
