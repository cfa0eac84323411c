"""Samples by hash: a share of all rows, and the same rows whenever and wherever they are read."""

_MIN_HASH, _MAX_HASH, _HASHES = -(2**63), 2**63 - 1, 2**64


def largest_hash(ratio: float) -> int:
    """Return the largest ``hashtextextended`` of a sample of this share of all rows."""
    return min(_MIN_HASH + round(ratio * _HASHES), _MAX_HASH)


def is_whole(ratio: float) -> bool:
    """Whether a sample of this share has all rows, so that none need be hashed."""
    return largest_hash(ratio) == _MAX_HASH
