"""Postgres' ``hashtextextended`` of many texts at once, so that a sample by hash is the same wherever the log is read.

Source: ``hash_bytes_extended`` of Postgres (Bob Jenkins' lookup3 of 2006), for a little-endian machine.
"""

import numpy as np
from numpy.typing import NDArray

_Words = NDArray[np.uint32]
_BLOCK = 12
_START = 0x9E3779B9 + 3_923_095
_MASK = 0xFFFF_FFFF


def text_hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the hash of each text.

    Args:
        data: The texts in UTF-8, one after the other.
        offsets: Where each begins, and where the last one ends: one more than there are texts.
        seed: As the second argument of Postgres' function.
    """
    starts, lengths = offsets[:-1], np.diff(offsets)
    # No text is read beyond its end: what a shorter block lacks is masked.
    padded = np.concatenate([data, np.zeros(_BLOCK, np.uint8)])
    a, b, c = _begin(lengths, seed)
    blocks = lengths // _BLOCK
    for number in range(int(blocks.max(initial=0))):
        at = np.flatnonzero(blocks > number)
        words = [_word(padded, starts[at] + _BLOCK * number + 4 * place) for place in range(3)]
        a[at], b[at], c[at] = _mixed(a[at] + words[0], b[at] + words[1], c[at] + words[2])
    tail = starts + _BLOCK * blocks
    left = lengths - _BLOCK * blocks
    a += _tail_word(padded, tail, left)
    b += _tail_word(padded, tail + 4, left - 4)
    # The lowest byte of the last word is reserved for the length.
    c += _tail_word(padded, tail + 8, left - 8) << np.uint32(8)
    b, c = _final(a, b, c)
    hashes: NDArray[np.int64] = ((b.astype(np.uint64) << np.uint64(32)) | c.astype(np.uint64)).view(np.int64)
    return hashes


def _begin(lengths: NDArray[np.int64], seed: int) -> tuple[_Words, _Words, _Words]:
    a = ((lengths + _START) & _MASK).astype(np.uint32)
    b, c = a.copy(), a.copy()
    if seed:
        high, low = np.uint32(seed >> 32 & _MASK), np.uint32(seed & _MASK)
        a, b, c = _mixed(a + high, b + low, c)
    return a, b, c


def _word(padded: NDArray[np.uint8], at: NDArray[np.int64]) -> _Words:
    word = padded[at].astype(np.uint32)
    for place in (1, 2, 3):
        word |= padded[at + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _tail_word(padded: NDArray[np.uint8], at: NDArray[np.int64], left: NDArray[np.int64]) -> _Words:
    word = np.zeros(len(at), np.uint32)
    for place in range(4):
        has = np.flatnonzero(left > place)
        word[has] |= padded[at[has] + place].astype(np.uint32) << np.uint32(8 * place)
    return word


def _rotated(word: _Words, by: int) -> _Words:
    rotated: _Words = (word << np.uint32(by)) | (word >> np.uint32(32 - by))
    return rotated


def _mixed(a: _Words, b: _Words, c: _Words) -> tuple[_Words, _Words, _Words]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a = (a - c) ^ _rotated(c, first)
        c = c + b
        b = (b - a) ^ _rotated(a, second)
        a = a + c
        c = (c - b) ^ _rotated(b, third)
        b = b + a
    return a, b, c


def _final(a: _Words, b: _Words, c: _Words) -> tuple[_Words, _Words]:
    for first, second, third in ((14, 11, 25), (16, 4, 14)):
        c = (c ^ b) - _rotated(b, first)
        a = (a ^ c) - _rotated(c, second)
        b = (b ^ a) - _rotated(a, third)
    return b, (c ^ b) - _rotated(b, 24)
