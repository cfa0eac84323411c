"""A request that asks for another protocol, as the request that it is without that (RFC 9110 §7.8).

Java's own client asks for HTTP/2 with its first call. uvicorn's parser takes such a request to end with its head, so
that its body would be lost: the head is written again without the fields that ask, and parsed again.
"""

from collections.abc import Iterable

_FIELDS = frozenset((b"upgrade", b"http2-settings"))
"""Header fields that ask for another protocol, and that ``connection`` names then."""


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a request's head, without what asks for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            tokens = [token for token in value.split(b",") if token.strip().lower() not in _FIELDS]
            lines.append(b"connection:" + b",".join(tokens))
        elif name not in _FIELDS:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join((*lines, b"", b""))
