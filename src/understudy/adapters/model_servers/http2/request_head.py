"""The header block of a request: literals that no table keeps, the same on every connection (RFC 7541)."""

from understudy.adapters.http2.header_fields import NEVER_INDEXED, field, named
from understudy.adapters.model_servers.addresses import Metadata

_STATIC_PATH, _STATIC_AUTHORITY, _STATIC_CONTENT_TYPE = 4, 1, 31
_POST, _HTTP, _HTTPS = b"\x83", b"\x86", b"\x87"
_MAX_DIGITS_VALUE = 99_999_999
_TIMEOUT = b"\x00\x0cgrpc-timeout"


def request_prefix(method: str, authority: str, *, is_secure: bool) -> bytes:
    """Return the part of the block that is the same for every call of a method."""
    return b"".join((
        _POST,
        _HTTPS if is_secure else _HTTP,
        named(_STATIC_PATH, method.encode("ascii")),
        named(_STATIC_AUTHORITY, authority.encode("ascii")),
        field(b"te", b"trailers"),
        named(_STATIC_CONTENT_TYPE, b"application/grpc"),
        field(b"user-agent", b"understudy"),
        field(b"grpc-accept-encoding", b"identity"),
    ))  # fmt: skip


def metadata_block(metadata: Metadata) -> bytes:
    """Return the part of the block that has a call's metadata; what cannot be a header is left out.

    Callers send some of it, of a trace. None of it is kept by tables of intermediaries: tokens are among it.
    """
    return b"".join(
        field(name.lower().encode("ascii"), value.encode("ascii"), NEVER_INDEXED)
        for name, value in metadata
        if name.isascii() and name.isprintable() and value.isascii() and value.isprintable()
    )


def timeout_block(seconds: float) -> bytes:
    """Return the part of the block that tells the server how long its answer is waited for: eight digits and a unit."""
    micros = int(seconds * 1e6)
    text = b"%du" % micros if micros <= _MAX_DIGITS_VALUE else b"%dm" % min(micros // 1_000, _MAX_DIGITS_VALUE)
    return _TIMEOUT + len(text).to_bytes(1) + text
