"""Prediction ids: identifiers that sort by time."""

import re
from collections.abc import Iterable

RANDOM_BITS = 74
"""Random bits of a UUID version 7."""
_OF_12 = 0xFFF << 62
_OF_62 = 0x3FFF_FFFF_FFFF_FFFF
_VARIANT = 0x8000_0000_0000_0000
_FORM = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


def prediction_id(unix_ms: int, random_bits: int) -> str:
    """Return a UUID version 7 as text.

    Args:
        unix_ms: Milliseconds since the epoch, 48 bits.
        random_bits: 74 random bits; two calls with the same value in one millisecond give the same id.
    """
    return prediction_ids(unix_ms, (random_bits,))[0]


def prediction_ids(unix_ms: int, random_bits: Iterable[int]) -> list[str]:
    """Return such ids for calls that began together: what the millisecond decides is made once.

    Source:
        RFC 9562 §5.7.
    """
    digits = ((unix_ms << 16 | 0x7000) << 64).to_bytes(16).hex()
    beginning = f"{digits[:8]}-{digits[8:12]}-{digits[12]}"
    found = []
    for bits in random_bits:
        # Ten bytes: one that stands for the beginning's last digit, and the 80 bits with version and variant.
        text = ((bits & _OF_12) << 2 | _VARIANT | bits & _OF_62).to_bytes(10).hex()
        found.append(f"{beginning}{text[1:4]}-{text[4:8]}-{text[8:]}")
    return found


def id_seconds(text: str) -> float | None:
    """Return when a prediction id was made, in seconds since the epoch; ``None`` for what is no UUID version 7."""
    found = _FORM.fullmatch(text)
    return None if found is None else int(found[1] + found[2], 16) / 1_000
