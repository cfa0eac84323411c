"""Header fields as we write them: literals that no table keeps (RFC 7541), so equal fields are equal bytes."""

NO_TABLE = b"\x20"
"""Says that our encoder uses no table, whatever size the peer allows; before the first block of a connection."""
NOT_INDEXED, NEVER_INDEXED = b"\x00", b"\x10"
_SHORT = 0x7F
_LENGTHS = tuple(bytes((size,)) for size in range(_SHORT))


def field(name: bytes, value: bytes, kind: bytes = NOT_INDEXED) -> bytes:
    """Return a field whose name and value are spelt out."""
    return kind + sized(name) + sized(value)


def named(index: int, value: bytes) -> bytes:
    """Return a field whose name is one of the static table's."""
    return number(index, 4, 0) + sized(value)


def sized(text: bytes) -> bytes:
    """Return a text behind its length."""
    size = len(text)
    return _LENGTHS[size] + text if size < _SHORT else number(size, 7, 0) + text


def number(value: int, bits: int, first: int) -> bytes:
    """Return an integer with a prefix of so many bits (RFC 7541, section 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((first | value,))
    found, value = bytearray((first | most,)), value - most
    while value >= 0x80:  # noqa: PLR2004 - seven bits a byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
