"""The header blocks of an answer: read by ``hpack``, and those that a server repeats taken from memory."""

from re import compile as compiled
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from hpack import Decoder, HPACKError

from understudy.adapters.model_servers.http2.frames import ConnectionFault, ErrorCode

MAX_HEAD_BYTES = 65_536
"""Of a block as it comes, and of its fields: stack traces come as ``grpc-message``."""
MAX_KEPT = 64
MAX_KEPT_BYTES = 512
MAX_STATUS_DIGITS = 3
_THREE_TABLE_SIZES = compiled(rb"([\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
"""A block may begin with two (RFC 7541, section 4.2); 64 KiB of nothing else would take a tenth of a second."""


class AnswerHead(NamedTuple):
    """What we read of a header block."""

    http_status: int | None = None
    grpc_status: int | None = None
    message: str = ""


class HeadReader:
    """Reads the header blocks of one connection, in their order: each may change the table that the next ones need.

    Servers are asked to use no table (SETTINGS_HEADER_TABLE_SIZE 0). From one that does not, blocks that are the same
    bytes say the same, and are read once. One that goes on using a table is read all the same.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_HEAD_BYTES)
        self._kept: dict[bytes, AnswerHead] = {}

    def read(self, block: bytes) -> AnswerHead:
        """Return what a block says.

        Raises:
            ConnectionFault: It cannot be read, or is too long; blocks that follow cannot be read either.
        """
        has_no_table = not self._decoder.header_table_size
        if has_no_table:
            known = self._kept.get(block)
            if known is not None:
                return known
        head = self._decode(block)
        if has_no_table and not self._decoder.header_table_size and len(block) <= MAX_KEPT_BYTES:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[block] = head
        return head

    def _decode(self, block: bytes) -> AnswerHead:
        if _THREE_TABLE_SIZES.match(block):
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "more sizes of the table than a block may have")
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, TypeError, ValueError) as defect:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "header fields that cannot be read") from defect
        return AnswerHead(
            _number(fields.get(b":status")),
            _number(fields.get(b"grpc-status")),
            unquote_to_bytes(fields.get(b"grpc-message", b"")).decode(errors="replace"),
        )


def _number(text: bytes | None) -> int | None:
    if text is None:
        return None
    return int(text) if text.isdigit() and len(text) <= MAX_STATUS_DIGITS else -1
