"""The format of the write-ahead spool: rows of ``PredictionLog`` on local disk.

A segment is a sequence of frames: ``length`` and ``crc32`` (u32 each, little-endian), then ``length`` bytes of
payload. The first payload is the segment's header. Every other one is a group, the rows of one write: how many they are
(u32), their records, whose fields the header names, and behind those their lines of Postgres' COPY text format, line
feeds included, so that shipping a batch is joining bytes. In a segment of format 2, which releases before wrote, a
frame has one row and no number; in one of format 1 it has no record either.

A payload ends with a line feed. Every frame behind a whole one therefore follows a line feed, which is how a reader
resynchronises after damage without any further mark.

A row's end is the offset behind its frame, or, when others of its group follow, the frame's start and as many bytes as
rows: every row has a place at which a shipper can go on behind it, and places grow from row to row.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import orjson

from understudy.core.prediction_log.copy_lines import CopyLines
from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_rows, encode_text
from understudy.core.prediction_log.row_record import FIELDS, NO_FIELDS, Fields, fields_of, record_bytes

FORMAT = 3
FRAME_BYTES = 8
MAX_PAYLOAD_BYTES = 4 * 1_048_576
"""Longest payload; a longer ``length`` on disk is damage. A body is at most 1 MiB, and its answer about as long."""

MAX_GROUP_ROWS = 256
"""Rows of a frame: what is damaged with one of its bytes, and how far is looked back for the start of a place's."""
MAX_GROUP_TEXT = 65_536
"""Characters of the lines of a frame that has more than one row."""
MAX_GROUP_BYTES = 4 * MAX_GROUP_TEXT + 65_536
"""Of such a frame: a character has at most four bytes, and what else there is less than the rest."""

_FRAME = Struct("<II")
_pack_frame = _FRAME.pack
_unpack_frame = _FRAME.unpack_from
_COUNT = Struct("<I")
_pack_count = _COUNT.pack
_unpack_count = _COUNT.unpack_from
_GROUPED_SINCE = 3
_LINE_FEED = 10


class SegmentHeader(NamedTuple):
    """The first frame of a segment, which describes the others."""

    format: int
    columns: tuple[str, ...]
    fields: Fields = NO_FIELDS
    """Of the records; none in a segment without them."""

    @property
    def has_groups(self) -> bool:
        """Whether a frame has any number of rows."""
        return self.format >= _GROUPED_SINCE


class Group(NamedTuple):
    """A frame, and how many rows it has."""

    frame: bytes
    rows: int


CURRENT = SegmentHeader(FORMAT, COLUMNS, FIELDS)
"""The header of segments that this release writes."""


class Frames(NamedTuple):
    """The rows of a piece of a segment; offsets count from the segment's beginning."""

    texts: list[bytes]
    """The lines of each frame."""
    records: list[bytes]
    """Those of each frame, one for each line; empty in a segment without them."""
    ends: list[int]
    """Each row's end."""
    consumed: int
    """Bytes before this offset are read or ``damaged``; what follows is not (yet) a whole frame."""
    damaged: list[tuple[int, int]]
    """Start and end of each damaged place that was skipped."""

    @property
    def lines(self) -> CopyLines:
        """All lines."""
        return CopyLines(self.texts, len(self.ends))


def encode_row(row: PredictionRow) -> bytes:
    """Return the frame of one row."""
    return encode_groups((row,))[0].frame


def encode_groups(rows: Sequence[PredictionRow]) -> list[Group]:
    """Return the frames of several rows: one, unless they are many or long."""
    records, lines = encode_rows(rows)
    groups = []
    for start in range(0, len(lines), MAX_GROUP_ROWS):
        some = slice(start, start + MAX_GROUP_ROWS)
        apart = 1 if sum(map(len, lines[some])) > MAX_GROUP_TEXT else MAX_GROUP_ROWS
        groups += [
            _group(records[one : one + apart], lines[one : one + apart])
            for one in range(start, min(some.stop, len(lines)), apart)
        ]
    return groups


def _group(records: Sequence[bytes], lines: Sequence[str]) -> Group:
    count = len(lines)
    return Group(_frame(b"".join((_pack_count(count), *records, encode_text(lines)))), count)


def encode_header(columns: Sequence[str] = COLUMNS) -> bytes:
    """Return a segment's first frame."""
    return _frame(orjson.dumps({"format": FORMAT, "columns": list(columns), "record": FIELDS}) + b"\n")


def read_header(segment: bytes) -> tuple[SegmentHeader, int] | None:
    """Return a segment's header and the offset behind it; ``None`` when the first frame is incomplete or no header."""
    end = _frame_end(segment, 0)
    if end is None:
        return None
    try:
        header = orjson.loads(segment[FRAME_BYTES:end])
        fields = fields_of(header.get("record", ()))
        return SegmentHeader(int(header["format"]), tuple(map(str, header["columns"])), fields), end
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None


def read_frames(piece: bytes, header: SegmentHeader = CURRENT, *, at: int = 0, max_rows: int | None = None) -> Frames:
    """Return the rows of a piece of a segment.

    An incomplete frame at the end is left for later. Damage is skipped up to the next whole frame; when none follows,
    reading stops before it, because it may be a frame that is still being written.

    Args:
        piece: It begins where a frame does.
        header: The segment's.
        at: The piece's offset in the segment.
        max_rows: No frame is read once there are so many rows.
    """
    texts: list[bytes] = []
    records: list[bytes] = []
    ends: list[int] = []
    damaged: list[tuple[int, int]] = []
    read = _read_group if header.has_groups else _read_row
    width = record_bytes(header.fields)
    size, position = len(piece), 0
    while position + FRAME_BYTES < size and (max_rows is None or len(ends) < max_rows):
        end = _frame_end(piece, position)
        found = None if end is None else read(piece, position + FRAME_BYTES, end, width)
        if found is None or end is None:
            next_start = _next_frame(piece, position)
            if next_start is None:
                break
            damaged.append((at + position, at + next_start))
            position = next_start
            continue
        count, their_records, text = found
        texts.append(text)
        records.append(their_records)
        ends += range(at + position + 1, at + position + count)
        ends.append(at + end)
        position = end
    return Frames(texts, records, ends, at + position, damaged)


def _read_group(piece: bytes, begin: int, end: int, width: int) -> tuple[int, bytes, bytes] | None:
    """Return how many rows a group has, their records and text; ``None`` if it has no room for them."""
    count: int = _unpack_count(piece, begin)[0] if end - begin > _COUNT.size else 0
    records_at = begin + _COUNT.size
    lines_at = records_at + count * width
    return (count, piece[records_at:lines_at], piece[lines_at:end]) if count and lines_at < end else None


def _read_row(piece: bytes, begin: int, end: int, width: int) -> tuple[int, bytes, bytes] | None:
    """Return the same of a frame of one row."""
    line_at = begin + width
    return (1, piece[begin:line_at], piece[line_at:end]) if line_at < end else None


def rows_before(piece: bytes, place: int) -> int:
    """Return how many rows of a group lie before a place between two of them; 0 where it is no such place.

    Args:
        piece: Of a segment with groups, with what lies :data:`MAX_GROUP_ROWS` bytes before the place and
            :data:`MAX_GROUP_BYTES` behind it.
        place: An offset in the piece.
    """
    for before in range(1, min(place + 1, MAX_GROUP_ROWS)):
        start = place - before
        if _frame_end(piece, start) is not None and before < _unpack_count(piece, start + FRAME_BYTES)[0]:
            return before
    return 0


def is_damage(rest: bytes, header: SegmentHeader | None = CURRENT) -> bool:
    """Whether the last bytes of a final segment are more than an unfinished frame.

    A process killed inside a write leaves the beginning of a frame, a power cut also zeros; no row of it was answered.
    """
    if len(rest) <= FRAME_BYTES or not rest.strip(b"\0"):
        return False
    length, _ = _unpack_frame(rest, 0)
    if FRAME_BYTES + length <= len(rest):
        return True
    if header is None or not header.has_groups:
        return rest.find(b"\n", FRAME_BYTES + record_bytes(NO_FIELDS if header is None else header.fields)) >= 0
    if len(rest) < FRAME_BYTES + _COUNT.size:
        return False
    count: int = _unpack_count(rest, FRAME_BYTES)[0]
    lines_at = _lines_at(rest, header)
    # The numbers of an unfinished frame are those of a whole one, or zeros.
    if length > MAX_PAYLOAD_BYTES or count > MAX_GROUP_ROWS or lines_at >= FRAME_BYTES + length:
        return True
    return rest.count(b"\n", lines_at) >= max(1, count)


class Letter(NamedTuple):
    """A dead letter that damaged bytes are kept as."""

    found: bytes
    end: int
    """Of the bytes that it stands for."""


def letters_of(damaged: bytes, header: SegmentHeader | None) -> list[Letter]:
    """Return what is kept of damaged bytes.

    Of a group that is what stands before its records, and then each of its lines: what a line says of whose row it is
    stays true of its letter, and an entity that is to be forgotten is found there. The records say the same in numbers,
    in which no entity would be found. What is longer than a group is one letter.
    """
    size, records_at = len(damaged), FRAME_BYTES + _COUNT.size
    if header is None or not header.has_groups or size > MAX_GROUP_BYTES:
        return [Letter(damaged, size)]
    letters = []
    end = 0
    if size > records_at and 0 < _unpack_count(damaged, FRAME_BYTES)[0] <= MAX_GROUP_ROWS:
        end = min(_lines_at(damaged, header), size)
        letters.append(Letter(damaged[:records_at], end))
    while end < size:
        start, end = end, damaged.find(b"\n", end) + 1 or size
        letters.append(Letter(damaged[start:end], end))
    return letters


def _lines_at(frame: bytes, header: SegmentHeader) -> int:
    """Return where the lines of a group begin, as its number says."""
    count: int = _unpack_count(frame, FRAME_BYTES)[0]
    return FRAME_BYTES + _COUNT.size + count * record_bytes(header.fields)


def follows(committed: tuple[int, int], start: tuple[int, int]) -> bool:
    """Whether rows from ``start`` (segment, offset) are the next ones behind ``committed``.

    The beginning of a later segment counts: its reader has seen the end of the one before.
    """
    return start == committed or (start[0] > committed[0] and start[1] == 0)


def _frame(payload: bytes) -> bytes:
    length = len(payload)
    # The length is the checksum's seed: a frame whose length was damaged cannot pass with another payload's checksum.
    return _pack_frame(length, crc32(payload, length)) + payload


def _frame_end(piece: bytes, start: int) -> int | None:
    """Return the end of the whole, undamaged frame at ``start``, or ``None``."""
    if start + FRAME_BYTES >= len(piece):
        return None
    length, checksum = _unpack_frame(piece, start)
    end: int = start + FRAME_BYTES + length
    if length > MAX_PAYLOAD_BYTES or end > len(piece) or piece[end - 1] != _LINE_FEED:
        return None
    return end if crc32(piece[start + FRAME_BYTES : end], length) == checksum else None


def _next_frame(piece: bytes, damaged: int) -> int | None:
    """Return the first start of a whole frame behind the damaged frame at ``damaged``."""
    # The damaged byte may be the line feed itself: then only the frame's own length leads to the next one.
    claimed: int = damaged + FRAME_BYTES + _unpack_frame(piece, damaged)[0]
    candidate = piece.find(b"\n", damaged) + 1
    while candidate:
        if claimed < candidate:
            if _frame_end(piece, claimed) is not None:
                return claimed
            claimed = len(piece)
        if _frame_end(piece, candidate) is not None:
            return candidate
        candidate = piece.find(b"\n", candidate) + 1
    return None
