"""Header blocks of answers: literals that no table keeps, most of a block made once."""

from base64 import b64encode
from collections.abc import Iterable
from urllib.parse import quote

from understudy.adapters.http2.header_fields import field, named
from understudy.entrypoints.proxy.messages.reply import Header

CODINGS = (b"gzip", b"deflate")
"""That messages may have, beside none."""
_STATUS_200, _STATIC_STATUS, _STATIC_CONTENT_TYPE = b"\x88", 8, 31
_HEAD = (
    _STATUS_200
    + named(_STATIC_CONTENT_TYPE, b"application/grpc")
    + field(b"grpc-accept-encoding", b",".join((b"identity", *CODINGS)))
)
_HEADS = {None: _HEAD} | {coding: _HEAD + field(b"grpc-encoding", coding) for coding in CODINGS}
_STATUSES = tuple(field(b"grpc-status", b"%d" % code) for code in range(17))
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def head_block(coding: bytes | None = None) -> bytes:
    """Return the block before an answer's message, which has this coding."""
    return _HEADS[coding]


def refusal_block(http_status: int) -> bytes:
    """Return the block of an answer to what is no call of gRPC's."""
    return named(_STATIC_STATUS, b"%d" % http_status)


def trailers_block(code: int, sentence: str, metadata: Iterable[Header]) -> bytes:
    """Return the block that ends an answer.

    Args:
        code: gRPC's number of the status.
        sentence: Says what is wrong; percent-encoded here.
        metadata: Names are in lower case; bytes of those that end in ``-bin`` are encoded here.
    """
    found = [_STATUSES[code]]
    if sentence:
        found.append(field(b"grpc-message", quote(sentence, safe=_PRINTABLE).encode("ascii")))
    for name, value in metadata:
        found.append(field(name, b64encode(value).rstrip(b"=") if name.endswith(b"-bin") else value))
    return b"".join(found)
