"""Header blocks as a peer sends them: put together from their frames, and read (RFC 9113, section 4.3; RFC 7541)."""

from collections.abc import Callable
from functools import lru_cache
from re import compile as compiled
from typing import TypeAlias

from hpack import Decoder, HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import END_HEADERS, PRIORITISED, ConnectionFault, ErrorCode, unpadded

Fields: TypeAlias = list[tuple[bytes, bytes]]
MAX_HEAD_BYTES = 65_536
"""Of a block as it comes, and of its fields: stack traces come as ``grpc-message``."""
SMALL_BYTES = 64
"""Of a part of a block, or of a message, that counts as work for nothing."""
_PRIORITY_BYTES = 5
_THREE_TABLE_SIZES = compiled(rb"([\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}")
"""A block may begin with two (RFC 7541, section 4.2); 64 KiB of nothing else would take a tenth of a second."""
_STATIC: tuple[tuple[bytes, bytes], ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_MAX_PLAIN_BYTES, _MAX_PLAIN_FIELDS = 4_096, 100
"""Of a block that is read in one pass: with all that these may stand for it is far below :data:`MAX_HEAD_BYTES`."""
_PREFIX_4, _PREFIX_6, _PREFIX_7 = 0x0F, 0x3F, 0x7F
_INDEXED, _INCREMENTAL, _TABLE_SIZE, _HUFFMAN = 0x80, 0x40, 0x20, 0x80
_MAX_KEPT_BYTES = 256


class HeaderBlocks:
    """Puts blocks together; while one goes on, only its continuation may follow.

    Args:
        budget: Pays for parts that hold next to nothing.
        take: Takes the flags of a block's first frame, its stream, and the whole block.
    """

    def __init__(self, budget: FrameBudget, take: Callable[[int, int, bytes], None]) -> None:
        self._budget = budget
        self._take = take
        self._block: tuple[int, int, bytearray] | None = None
        """Stream, flags and bytes of a block that has not come to its end."""

    @property
    def continues(self) -> int | None:
        """The stream of a block that has not come to its end."""
        return None if self._block is None else self._block[0]

    def take_headers(self, flags: int, number: int, payload: bytes) -> None:
        """Take the begin of a block."""
        block = unpadded(flags, payload)
        if flags & PRIORITISED:
            if len(block) < _PRIORITY_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a header without its priority")
            block = block[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._take(flags, number, block)
        else:
            self._block = (number, flags, bytearray(block))

    def take_continuation(self, flags: int, _number: int, payload: bytes) -> None:
        """Take a further part of the block that has begun; one without an end is no attack on memory or time."""
        if self._block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a continuation of nothing")
        stream, first_flags, block = self._block
        if len(payload) < SMALL_BYTES:
            self._budget.spend()
        block += payload
        if len(block) > MAX_HEAD_BYTES:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "a header block that does not end")
        if flags & END_HEADERS:
            self._block = None
            self._take(first_flags, stream, bytes(block))


class BlockReader:
    """Reads the blocks of one connection, in their order: each may change the table that the next ones need.

    Peers are asked to use no table (SETTINGS_HEADER_TABLE_SIZE 0): a block of one that does not is read in one pass.
    One that goes on using a table is read all the same.
    """

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_HEAD_BYTES)

    @property
    def has_table(self) -> bool:
        """Whether the peer may use one: else equal blocks say the same."""
        return bool(self._decoder.header_table_size)

    def read(self, block: bytes) -> Fields:
        """Return a block's fields.

        Raises:
            ConnectionFault: It cannot be read, or is too long; blocks that follow cannot be read either.
        """
        if not self._decoder.header_table_size and len(block) <= _MAX_PLAIN_BYTES:
            found = plain_fields(block)
            if found is not None:
                return found
        if _THREE_TABLE_SIZES.match(block):
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "more sizes of the table than a block may have")
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except (HPACKError, IndexError, TypeError, ValueError) as defect:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "header fields that cannot be read") from defect


def plain_fields(block: bytes) -> Fields | None:
    """Return the fields of a block that refers to no table but the static one; ``None``: another reader is to judge."""
    found: Fields = []
    at, end = 0, len(block)
    try:
        while at < end:
            first = block[at]
            if first & _INDEXED:
                at += 1
                if first == _INDEXED:
                    return None
                found.append(_STATIC[first & _PREFIX_7])
                continue
            if first & _INCREMENTAL:
                most = _PREFIX_6
            elif first & _TABLE_SIZE:
                return None
            else:
                most = _PREFIX_4
            index = first & most
            at += 1
            if index == most:
                index += block[at]
                at += 1
            if index:
                name = _STATIC[index][0]
            else:
                name, at = _text(block, at)
            value, at = _text(block, at)
            found.append((name, value))
    except (IndexError, HPACKError):
        return None
    return found if at == end and len(found) <= _MAX_PLAIN_FIELDS else None


def _text(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a text, and where it ends; raises ``IndexError`` for one that is cut off, or very long."""
    first = block[at]
    size = first & _PREFIX_7
    at += 1
    if size == _PREFIX_7:
        more = block[at]
        size += more & _PREFIX_7
        at += 1
        if more & 0x80:
            size += block[at] << 7
            if block[at] & 0x80:
                raise IndexError
            at += 1
    end = at + size
    text = block[at:end]
    if len(text) != size:
        raise IndexError
    return (_unpacked(text) if first & _HUFFMAN else text), end


def _unpacked(text: bytes) -> bytes:
    return _kept(text) if len(text) <= _MAX_KEPT_BYTES else bytes(decode_huffman(text))


@lru_cache(maxsize=1_024)
def _kept(text: bytes) -> bytes:
    """Return what a text in Huffman's code says: names, paths and user agents are the same in many calls."""
    return bytes(decode_huffman(text))
