"""Prediction ids: identifiers that sort by time."""

RANDOM_BITS = 74
"""Random bits of a UUID version 7."""


def prediction_id(unix_ms: int, random_bits: int) -> str:
    """Return a UUID version 7 as text.

    Args:
        unix_ms: Milliseconds since the epoch, 48 bits.
        random_bits: 74 random bits; two calls with the same value in one millisecond give the same id.

    Source:
        RFC 9562 §5.7.
    """
    high = (unix_ms << 16) | 0x7000 | (random_bits >> 62 & 0xFFF)
    low = 0x8000_0000_0000_0000 | (random_bits & 0x3FFF_FFFF_FFFF_FFFF)
    text = (high << 64 | low).to_bytes(16).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
