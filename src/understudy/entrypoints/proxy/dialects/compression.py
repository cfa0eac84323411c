"""Compressed bodies, which other protocols' clients may send and ask for; a bomb is refused while it is inflated."""

import zlib

from understudy.background.thread_bulkhead import ThreadBulkhead
from understudy.errors import BodyTooLarge, HeaderInvalid, MalformedBody

GZIP, DEFLATE = b"gzip", b"deflate"
_WINDOWS = {GZIP: 31, DEFLATE: 15}
"""zlib's window bits: of gzip's format, and of zlib's own, which HTTP calls ``deflate`` (RFC 9110 §8.4.1.2)."""
MIN_BYTES = 1_024
"""Of an answer that is worth compressing."""
LEVEL = 1
INLINE_DEFLATED_BYTES = 4_096
"""Of a compressed body that is inflated on the event loop, as long as it stays short."""
INLINE_INFLATED_BYTES = 65_536
"""Of what is inflated on the event loop. A bomb of 2 KB is a mebibyte, which takes some three milliseconds: a hundred
such callers at once would hold the loop for a third of a second."""


def inflated(body: bytes, coding: bytes, limit_bytes: int) -> bytes:
    """Return a body as it was before its ``content-encoding``.

    Raises:
        HeaderInvalid: The coding is neither ``gzip`` nor ``deflate``.
        BodyTooLarge: It is longer than a body may be; no more than that is inflated.
        MalformedBody: It is not of that coding, or has no end.
    """
    window = _WINDOWS.get(coding.strip().lower())
    if window is None:
        raise HeaderInvalid("content-encoding: expected gzip, deflate or identity")
    engine = zlib.decompressobj(window)
    try:
        found = engine.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise MalformedBody(f"the body is not {coding.decode('latin-1').strip()[:16]}") from None
    if len(found) > limit_bytes:
        raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes once it is inflated")
    if not engine.eof or engine.unused_data:
        raise MalformedBody("the compressed body is cut short, or more follows it")
    return found


async def inflated_beside(pool: ThreadBulkhead, body: bytes, coding: bytes, limit_bytes: int) -> bytes:
    """Return what :func:`inflated` returns, in a thread where the body is long or becomes long; raises what it raises.

    Raises:
        Overloaded: No thread was free in time.
    """
    if len(body) <= INLINE_DEFLATED_BYTES:
        try:
            return inflated(body, coding, min(limit_bytes, INLINE_INFLATED_BYTES))
        except BodyTooLarge:
            if limit_bytes <= INLINE_INFLATED_BYTES:
                raise
    return await pool.run(inflated, body, coding, limit_bytes)


def coding_for(accepted: bytes | None, size: int) -> bytes | None:
    """Return the coding of an answer that a caller accepts: of a long one, or where it names that coding alone."""
    if accepted is None:
        return None
    named = [_name_of(part) for part in accepted.lower().split(b",")]
    coding = next((one for one in (GZIP, DEFLATE) if one in named), None)
    return coding if size >= MIN_BYTES or len(named) == 1 else None


def deflated(body: bytes, coding: bytes) -> bytes:
    """Return a compressed body."""
    engine = zlib.compressobj(LEVEL, zlib.DEFLATED, _WINDOWS[coding])
    return engine.compress(body) + engine.flush()


def _name_of(part: bytes) -> bytes:
    """Return the coding that an item of ``accept-encoding`` names; none where its weight is 0."""
    name, _, weight = part.partition(b";")
    is_refused = weight.replace(b" ", b"").rstrip(b"0").rstrip(b".") in (b"q=", b"q=0")
    return b"" if weight and is_refused else name.strip()
