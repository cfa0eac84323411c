"""What the header block of a call says: its method, metadata, deadline and codings (gRPC over HTTP/2)."""

from collections.abc import Iterable
from functools import lru_cache
from re import compile as compiled
from typing import NamedTuple

from understudy.entrypoints.proxy.messages.headers import GRPC_UNITS
from understudy.entrypoints.proxy.messages.reply import Header

MAX_METADATA_BYTES = 16_384
"""Of a call's header fields, each with the 32 bytes that HTTP/2 adds (RFC 9113, section 10.5.1)."""
CONTENT_TYPE = b"application/grpc"
_FIELD_BYTES = 32
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_RESERVED = frozenset({b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"})
_OF_HTTP_1 = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_NAME = compiled(rb"[0-9a-z!#$%&'*+\-.^_`|~]+")
_NO_VALUE = compiled(rb"[\x00\r\n]")
_TIMEOUT = compiled(rb"(\d{1,8})([HMSmun])")
_METHOD_NOT_ALLOWED, _UNSUPPORTED_MEDIA_TYPE = 405, 415


class Malformed(Exception):
    """A header block that is no request: its stream is reset."""


class RequestHead(NamedTuple):
    """A call's header."""

    path: str
    metadata: list[Header]
    """Without what gRPC itself reads."""
    timeout: bytes | None
    """As it was sent."""
    coding: bytes
    """Of its message, where that says that it is compressed."""
    accepts: bytes
    """Codings of the answer."""
    http_status: int | None
    """With which it is refused, as it is no call of gRPC's."""
    is_too_long: bool

    @property
    def seconds(self) -> float | None:
        """How long its caller waits; ``None`` where it does not say, or says what cannot be read."""
        match = None if self.timeout is None else _TIMEOUT.fullmatch(self.timeout)
        return None if match is None else int(match.group(1)) * GRPC_UNITS[match.group(2)]


def read_head(fields: Iterable[Header]) -> RequestHead:
    """Return what a header block says.

    Raises:
        Malformed: It is no request (RFC 9113, section 8.3).
    """
    pseudo: dict[bytes, bytes] = {}
    reserved: dict[bytes, bytes] = {}
    metadata: list[Header] = []
    size = 0
    for one in fields:
        name, value = one
        size += len(name) + len(value) + _FIELD_BYTES
        if name in _PSEUDO:
            if name in pseudo or metadata or reserved:
                raise Malformed
            pseudo[name] = value
        elif name in _RESERVED:
            known = reserved.get(name)
            reserved[name] = value if known is None else b"%b,%b" % (known, value)  # as HTTP has it
        else:
            _require_name(name)
            metadata.append(one)
        if _NO_VALUE.search(value):
            raise Malformed
    path = pseudo.get(b":path", b"")
    if not path.startswith(b"/") or not path.isascii() or b":method" not in pseudo or b":scheme" not in pseudo:
        raise Malformed
    return RequestHead(
        path.decode("ascii"),
        metadata,
        reserved.get(b"grpc-timeout"),
        reserved.get(b"grpc-encoding", b"identity"),
        reserved.get(b"grpc-accept-encoding", b""),
        _refusal(pseudo[b":method"], reserved.get(b"content-type", b"")),
        size > MAX_METADATA_BYTES,
    )


def _refusal(method: bytes, content_type: bytes) -> int | None:
    if content_type != CONTENT_TYPE and not content_type.startswith((CONTENT_TYPE + b"+", CONTENT_TYPE + b";")):
        return _UNSUPPORTED_MEDIA_TYPE
    return None if method == b"POST" else _METHOD_NOT_ALLOWED


@lru_cache(maxsize=1_024)
def _require_name(name: bytes) -> None:
    if name in _OF_HTTP_1 or not _NAME.fullmatch(name):
        raise Malformed
