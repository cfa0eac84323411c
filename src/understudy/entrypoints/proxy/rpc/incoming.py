"""A gRPC call as it came: metadata as headers, and its deadline as gRPC writes it."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable

from understudy.entrypoints.proxy.messages.headers import CATEGORY_HEADER, ENTITY_HEADER, OPTION_HEADERS
from understudy.entrypoints.proxy.messages.reply import Header
from understudy.errors import HeaderInvalid

_ONCE = OPTION_HEADERS | {ENTITY_HEADER, CATEGORY_HEADER}
"""A caller that names two may mean either."""
_OURS = frozenset({b"content-length", b"content-encoding"})
"""What HTTP's headers say is said by gRPC itself: the message has a length, and a coding of its own."""
_AS_BYTES = {name + b"-bin": name for name in (ENTITY_HEADER, CATEGORY_HEADER)}
"""Names under which they may come in UTF-8: other metadata is ASCII."""
_MAX_NUMBER = 99_999_999
"""Of a deadline as gRPC writes it: in eight digits."""


def headers_of(metadata: Iterable[Header]) -> list[Header]:
    """Return a call's metadata as headers.

    Args:
        metadata: Names are in lower case; a name that ends in ``-bin`` has bytes in base64.

    Raises:
        HeaderInvalid: It names the key, the entity, the category or a deadline twice, or bytes are none.
    """
    found: list[Header] = []
    known: set[bytes] = set()
    for one in metadata:
        name = one[0]
        if name in _OURS:
            continue
        if name in _AS_BYTES:
            one = (_AS_BYTES[name], _bytes_of(*one))  # noqa: PLW2901 - it is the same one
            name = one[0]
        if name in _ONCE:
            if name in known:
                raise HeaderInvalid(f"{name.decode()}: the call's metadata has two of it")
            known.add(name)
        found.append(one)
    return found


def timeout_header(seconds: float) -> Header:
    """Return what is left of a call's deadline as the header that says so."""
    microseconds = int(max(seconds, 1e-6) * 1e6)
    if 0 < microseconds <= _MAX_NUMBER:
        return b"grpc-timeout", b"%du" % microseconds
    return b"grpc-timeout", b"%dm" % min(max(int(seconds * 1e3), 1), _MAX_NUMBER)


def _bytes_of(name: bytes, value: bytes) -> bytes:
    try:
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except NotBase64:
        raise HeaderInvalid(f"{name.decode()}: expected bytes in base64") from None
