"""The header blocks of an answer: read by ``hpack``, and those that a server repeats taken from memory."""

from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from understudy.adapters.http2.header_blocks import BlockReader

MAX_KEPT = 64
MAX_KEPT_BYTES = 512
MAX_STATUS_DIGITS = 3
_KNOWN = frozenset({b":status", b"content-type", b"grpc-status", b"grpc-message"})


class AnswerHead(NamedTuple):
    """What we read of a header block."""

    http_status: int | None = None
    grpc_status: int | None = None
    message: str = ""
    trailers: tuple[tuple[bytes, bytes], ...] = ()
    """What else stands beside a status that is none of success."""


class HeadReader:
    """Reads the header blocks of one connection, in their order; such as a server repeats are read once."""

    def __init__(self) -> None:
        self._blocks = BlockReader()
        self._kept: dict[bytes, AnswerHead] = {}

    def read(self, block: bytes) -> AnswerHead:
        """Return what a block says; raises as :meth:`.BlockReader.read`."""
        has_no_table = not self._blocks.has_table
        if has_no_table:
            known = self._kept.get(block)
            if known is not None:
                return known
        head = _head_of(dict(self._blocks.read(block)))
        if has_no_table and not self._blocks.has_table and len(block) <= MAX_KEPT_BYTES:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[block] = head
        return head


def _head_of(fields: dict[bytes, bytes]) -> AnswerHead:
    status = _number(fields.get(b"grpc-status"))
    return AnswerHead(
        _number(fields.get(b":status")),
        status,
        unquote_to_bytes(fields.get(b"grpc-message", b"")).decode(errors="replace"),
        tuple(one for one in fields.items() if one[0] not in _KNOWN) if status else (),
    )


def _number(text: bytes | None) -> int | None:
    if text is None:
        return None
    return int(text) if text.isdigit() and len(text) <= MAX_STATUS_DIGITS else -1
