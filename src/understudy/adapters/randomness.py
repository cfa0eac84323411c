"""Random identifiers from the operating system, fetched in blocks."""

import os
from collections.abc import Iterator
from itertools import chain

_BLOCK = 400
"""Identifiers that are fetched at once."""


def random_hex(count: int) -> Iterator[str]:
    """Yield so many cryptographically random bytes as hex digits, without end, each drawn once.

    Take the first one after a fork: two processes with one block would draw the same. Between two blocks no function of
    Python is entered, which would cost more than the digits.
    """

    def block() -> list[str]:
        digits = os.urandom(count * _BLOCK).hex()
        return [digits[start : start + 2 * count] for start in range(0, len(digits), 2 * count)]

    return chain.from_iterable(iter(block, None))
