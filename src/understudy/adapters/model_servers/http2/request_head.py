"""The header block of a request: literals that no table keeps, the same on every connection (RFC 7541)."""

from understudy.adapters.model_servers.addresses import Metadata

NO_TABLE = b"\x20"
"""Says that our encoder uses no table, whatever size the server allows; before the first block of a connection."""
_STATIC_PATH, _STATIC_AUTHORITY, _STATIC_CONTENT_TYPE = 4, 1, 31
_POST, _HTTP, _HTTPS = b"\x83", b"\x86", b"\x87"
_NEVER_INDEXED = b"\x10"
_MAX_DIGITS_VALUE = 99_999_999
_TIMEOUT = b"\x00\x0cgrpc-timeout"


def request_prefix(method: str, authority: str, *, is_secure: bool) -> bytes:
    """Return the part of the block that is the same for every call of a method."""
    return b"".join((
        _POST,
        _HTTPS if is_secure else _HTTP,
        _named(_STATIC_PATH, method.encode("ascii")),
        _named(_STATIC_AUTHORITY, authority.encode("ascii")),
        _field(b"te", b"trailers"),
        _named(_STATIC_CONTENT_TYPE, b"application/grpc"),
        _field(b"user-agent", b"understudy"),
        _field(b"grpc-accept-encoding", b"identity"),
    ))  # fmt: skip


def metadata_block(metadata: Metadata) -> bytes:
    """Return the part of the block that has a call's metadata; what cannot be a header is left out.

    Callers send some of it, of a trace. None of it is kept by tables of intermediaries: tokens are among it.
    """
    return b"".join(
        _field(name.lower().encode("ascii"), value.encode("ascii"), _NEVER_INDEXED)
        for name, value in metadata
        if name.isascii() and name.isprintable() and value.isascii() and value.isprintable()
    )


def timeout_block(seconds: float) -> bytes:
    """Return the part of the block that tells the server how long its answer is waited for: eight digits and a unit."""
    micros = int(seconds * 1e6)
    text = b"%du" % micros if micros <= _MAX_DIGITS_VALUE else b"%dm" % min(micros // 1_000, _MAX_DIGITS_VALUE)
    return _TIMEOUT + len(text).to_bytes(1) + text


def _named(index: int, value: bytes) -> bytes:
    return _number(index, 4, 0) + _number(len(value), 7, 0) + value


def _field(name: bytes, value: bytes, kind: bytes = b"\x00") -> bytes:
    return kind + _number(len(name), 7, 0) + name + _number(len(value), 7, 0) + value


def _number(value: int, bits: int, first: int) -> bytes:
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
