"""A gRPC call as it came: metadata as headers, and its one message, within a bound."""

from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from understudy.entrypoints.proxy.dialects.handler import CATEGORY_HEADER, ENTITY_HEADER
from understudy.entrypoints.proxy.messages.headers import OPTION_HEADERS
from understudy.entrypoints.proxy.messages.reply import Header
from understudy.entrypoints.proxy.server.overload import counted_address
from understudy.errors import BodyTooLarge, HeaderInvalid, MalformedBody

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_ONCE = OPTION_HEADERS | {ENTITY_HEADER, CATEGORY_HEADER}
"""A caller that names two may mean either."""
_OURS = frozenset({b"content-length", b"content-encoding", b"grpc-timeout"})
"""What HTTP's headers say is said by gRPC itself: the message has a length, was decompressed, and has a deadline."""
_AS_BYTES = {name + b"-bin": name for name in (ENTITY_HEADER, CATEGORY_HEADER)}
"""Names under which they may come in UTF-8: other metadata is ASCII."""
_MAX_NUMBER = 99_999_999
"""Of a deadline as gRPC writes it: in eight digits."""


def headers_of(metadata: Iterable[tuple[str, str | bytes]], seconds_left: float | None) -> list[Header]:
    """Return a call's metadata as headers, with its deadline as gRPC writes it.

    Args:
        metadata: Names are in lower case; a name that ends in ``-bin`` has bytes.
        seconds_left: Until the deadline; ``None``: there is none.

    Raises:
        HeaderInvalid: It names the key, the entity, the category or a deadline twice.
    """
    found: list[Header] = []
    known: set[bytes] = set()
    for key, value in metadata:
        name = _AS_BYTES.get(key.encode(), key.encode())
        if name in _OURS:
            continue
        if name in _ONCE:
            if name in known:
                raise HeaderInvalid(f"{name.decode()}: the call's metadata has two of it")
            known.add(name)
        found.append((name, value.encode() if isinstance(value, str) else value))
    if seconds_left is not None:
        found.append((b"grpc-timeout", _timeout(max(seconds_left, 1e-6))))
    return found


def _timeout(seconds: float) -> bytes:
    microseconds = int(seconds * 1e6)
    if 0 < microseconds <= _MAX_NUMBER:
        return b"%du" % microseconds
    return b"%dm" % min(max(int(seconds * 1e3), 1), _MAX_NUMBER)


def message_of(message: object, limit_bytes: int) -> bytes:
    """Return what was read of a call as its one message.

    Raises:
        BodyTooLarge: It has more than ``limit_bytes``.
        MalformedBody: There is none.
    """
    if not isinstance(message, bytes):
        raise MalformedBody("the call has no message")
    if len(message) > limit_bytes:
        raise BodyTooLarge(f"the message is longer than {limit_bytes} bytes")
    return message


def address_of(peer: str) -> str:
    """Return the address by which a caller's bytes are counted: ``ipv4:127.0.0.1:40000``, ``ipv6:%5B::1%5D:40000``."""
    kind, _, rest = peer.partition(":")
    host = unquote(rest).rpartition(":")[0].strip("[]")
    return counted_address((host.partition("%")[0],)) if kind in {"ipv4", "ipv6"} else ""
