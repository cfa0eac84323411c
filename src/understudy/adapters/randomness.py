"""Random numbers from the operating system, fetched in blocks."""

import os
from collections.abc import Iterator
from itertools import chain

_BLOCK = 400
"""Numbers that are fetched at once: two system calls for each request would cost 4 µs."""


def random_numbers(bits: int) -> Iterator[int]:
    """Yield numbers of so many cryptographically random bits without end, each drawn once.

    Take the first one after a fork: two processes with one block would draw the same numbers. Between two blocks no
    function of Python is entered, which would cost more than the number.
    """
    size = (bits + 7) // 8
    spare = size * 8 - bits

    def block() -> list[int]:
        drawn = os.urandom(size * _BLOCK)
        return [int.from_bytes(drawn[start : start + size]) >> spare for start in range(0, len(drawn), size)]

    return chain.from_iterable(iter(block, None))


def random_hex(count: int) -> Iterator[str]:
    """Yield so many random bytes as hex digits, without end; as :func:`random_numbers`."""

    def block() -> list[str]:
        digits = os.urandom(count * _BLOCK).hex()
        return [digits[start : start + 2 * count] for start in range(0, len(digits), 2 * count)]

    return chain.from_iterable(iter(block, None))
