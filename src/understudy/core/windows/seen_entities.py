"""Entities that a shipper has met before, in bounded memory, so that none is counted twice."""

from array import array
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

WORDS = 131_072
"""Of 64 bits: 1 MiB."""

_FIRST_CHOICE = 17
"""Bits of a hash that choose the word; what follows chooses four of its bits."""
_FEW = 64
"""Fewer hashes are remembered one by one: that costs less than to begin with arrays (measured)."""


class SeenEntities:
    """A set of 64-bit hashes that never grows, never forgets, and claims more and more that it never met.

    After 500,000 hashes it claims 0.4 % of the others, after a million 3 %, after four million 53 % (measured).
    What is wrongly taken for known is not counted as new: its hash decides that and not its role, so the shares of the
    roles stay what they are.

    Source:
        Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007: all bits of a hash in one
        word, so that asking is one look.
    """

    def __init__(self) -> None:
        self._words = array("Q", bytes(8 * WORDS))

    def have(self, entity_hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each hash whether it was met, or all its bits by others."""
        bits = _all_bits_of(entity_hashes)
        known: NDArray[np.bool_] = np.frombuffer(self._words, np.uint64)[entity_hashes % WORDS] & bits == bits
        return known

    def remember(self, entity_hashes: Collection[int]) -> None:
        """Have met the hashes from now on."""
        if len(entity_hashes) < _FEW:
            for entity_hash in entity_hashes:
                self._words[entity_hash % WORDS] |= _bits_of(entity_hash)
            return
        hashes = np.fromiter(entity_hashes, np.uint64, len(entity_hashes))
        words = np.frombuffer(self._words, np.uint64)
        np.bitwise_or.at(words, hashes % WORDS, _all_bits_of(hashes))


def _bits_of(entity_hash: int) -> int:
    rest = entity_hash >> _FIRST_CHOICE
    return 1 << (rest & 63) | 1 << (rest >> 6 & 63) | 1 << (rest >> 12 & 63) | 1 << (rest >> 18 & 63)


def _all_bits_of(entity_hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    rest = entity_hashes >> np.uint64(_FIRST_CHOICE)
    bits = np.zeros_like(rest)
    for shift in (0, 6, 12, 18):
        bits |= np.uint64(1) << (rest >> np.uint64(shift) & np.uint64(63))
    return bits
