"""The format of the write-ahead spool: rows of ``PredictionLog`` on local disk.

A segment is a sequence of frames: ``length`` and ``crc32`` (u32 each, little-endian), then ``length`` bytes of
payload. The first payload is the segment's header; every other one is a row's record, whose fields the header names,
and behind it a line of Postgres' COPY text format, line feed included, so that shipping a batch is joining bytes. A
segment of format 1, which releases before wrote, has no records.

A payload ends with a line feed. Every frame behind a whole one therefore follows a line feed, which is how a reader
resynchronises after damage without any further mark.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import orjson

from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_encoding import encode_payload, encode_payloads
from understudy.core.prediction_log.row_record import FIELDS, NO_FIELDS, Fields, fields_of, record_bytes

FORMAT = 2
FRAME_BYTES = 8
MAX_PAYLOAD_BYTES = 4 * 1_048_576
"""Longest payload; a longer ``length`` on disk is damage. A body is at most 1 MiB, and its answer about as long."""

_FRAME = Struct("<II")
_pack_frame = _FRAME.pack
_unpack_frame = _FRAME.unpack_from
_LINE_FEED = 10


class SegmentHeader(NamedTuple):
    """The first frame of a segment, which describes the others."""

    format: int
    columns: tuple[str, ...]
    fields: Fields = NO_FIELDS
    """Of the records; none in a segment without them."""


class Frames(NamedTuple):
    """The rows of a piece of a segment; offsets count from the piece's beginning."""

    lines: list[bytes]
    """COPY text."""
    records: list[bytes]
    """One for each line, empty in a segment without them."""
    ends: list[int]
    """Offset behind each row's frame."""
    consumed: int
    """Bytes before this offset are in ``lines`` or ``damaged``; what follows is not (yet) a whole frame."""
    damaged: list[tuple[int, int]]
    """Start and end of each damaged place that was skipped."""


def encode_row(row: PredictionRow) -> bytes:
    """Return the frame of one row."""
    return _frame(encode_payload(row))


def encode_rows(rows: Iterable[PredictionRow]) -> list[bytes]:
    """Return the frames of several rows."""
    frames = []
    for payload in encode_payloads(rows):
        length = len(payload)
        frames.append(_pack_frame(length, crc32(payload, length)) + payload)  # as _frame() does
    return frames


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


def read_frames(piece: bytes, fields: Fields = FIELDS, offset: int = 0, max_rows: int | None = None) -> Frames:
    """Return the rows of a piece of a segment from ``offset`` (a frame's start) on, at most ``max_rows`` of them.

    An incomplete frame at the end is left for later. Damage is skipped up to the next whole frame; when none follows,
    reading stops before it, because it may be a frame that is still being written.
    """
    lines: list[bytes] = []
    records: list[bytes] = []
    ends: list[int] = []
    damaged: list[tuple[int, int]] = []
    width = record_bytes(fields)
    size = len(piece)
    position = offset
    while position + FRAME_BYTES < size and (max_rows is None or len(lines) < max_rows):
        length, checksum = _unpack_frame(piece, position)
        begin = position + FRAME_BYTES
        end = begin + length
        if width < length and end <= size and piece[end - 1] == _LINE_FEED:
            payload = piece[begin:end]
            if crc32(payload, length) == checksum:
                records.append(payload[:width])
                lines.append(payload[width:])
                ends.append(end)
                position = end
                continue
        next_start = _next_frame(piece, position)
        if next_start is None:
            break
        damaged.append((position, next_start))
        position = next_start
    return Frames(lines, records, ends, position, damaged)


def is_damage(rest: bytes, fields: Fields = FIELDS) -> bool:
    """Whether the last bytes of a final segment are more than an unfinished frame.

    A process killed inside a write leaves the beginning of a frame, a power cut also zeros; neither row was answered.
    """
    if len(rest) <= FRAME_BYTES or not rest.strip(b"\0"):
        return False
    length, _ = _unpack_frame(rest, 0)
    return FRAME_BYTES + length <= len(rest) or b"\n" in rest[FRAME_BYTES + record_bytes(fields) :]


def row_starts(lines: Sequence[bytes], fields: Fields, end: int) -> list[int]:
    """Return the offset of each row's frame, for rows without a gap of which the last one ends at ``end``."""
    around = FRAME_BYTES + record_bytes(fields)
    lengths = [around + len(line) for line in lines]
    first = end - sum(lengths)
    return list(accumulate(lengths[:-1], initial=first)) if lengths else []


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
