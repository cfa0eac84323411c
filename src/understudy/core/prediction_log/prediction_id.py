"""Prediction ids: identifiers that sort by time."""

import re

RANDOM_BITS = 74
"""Random bits of a UUID version 7."""
RANDOM_BYTES = 10
"""Bytes that they are taken from."""
_OF_12 = 0xFFF << 62
_OF_62 = 0x3FFF_FFFF_FFFF_FFFF
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
"""By a byte, what it is with the variant in its first two bits."""
_VARIANT_AT = 2
_DIGITS = 2 * RANDOM_BYTES
_FORM = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


def prediction_id(unix_ms: int, random_bits: int) -> str:
    """Return a UUID version 7 as text.

    Args:
        unix_ms: Milliseconds since the epoch, 48 bits.
        random_bits: 74 random bits; two calls with the same value in one millisecond give the same id.
    """
    return prediction_ids(unix_ms, ((random_bits & _OF_12) << 2 | random_bits & _OF_62).to_bytes(RANDOM_BYTES))[0]


def prediction_ids(unix_ms: int, random_bytes: bytes) -> list[str]:
    """Return such ids for calls that began together: what they have in common is made once.

    Args:
        unix_ms: Milliseconds since the epoch, 48 bits.
        random_bytes: For each id :data:`RANDOM_BYTES`, of which all but six bits are in it.

    Source:
        RFC 9562 §5.7.
    """
    digits = ((unix_ms << 16 | 0x7000) << 64).to_bytes(16).hex()
    beginning = f"{digits[:8]}-{digits[8:12]}-{digits[12]}"
    drawn = bytearray(random_bytes)
    drawn[_VARIANT_AT::RANDOM_BYTES] = drawn[_VARIANT_AT::RANDOM_BYTES].translate(_VARIANT)
    text = drawn.hex()  # of each id a digit that is not used, where the beginning has its last one, and nineteen
    return [
        f"{beginning}{text[at + 1 : at + 4]}-{text[at + 4 : at + 8]}-{text[at + 8 : at + _DIGITS]}"
        for at in range(0, len(text), _DIGITS)
    ]


def id_seconds(text: str) -> float | None:
    """Return when a prediction id was made, in seconds since the epoch; ``None`` for what is no UUID version 7."""
    found = _FORM.fullmatch(text)
    return None if found is None else int(found[1] + found[2], 16) / 1_000
