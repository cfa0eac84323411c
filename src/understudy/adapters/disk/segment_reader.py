"""Reads the segments of a spool: rows in batches, and what is damaged as it was found."""

import os
from bisect import bisect_right
from collections.abc import Sequence

from understudy.core.prediction_log.row_record import RowRecords
from understudy.core.prediction_log.spool_format import (
    MAX_GROUP_BYTES,
    MAX_GROUP_ROWS,
    Frames,
    Letter,
    SegmentHeader,
    is_damage,
    letters_of,
    read_frames,
    read_header,
    rows_before,
)
from understudy.ports.prediction_log.prediction_log import SpooledBatch

HEADER_READ_BYTES = 16_384
_PIECE_BYTES = 98_304
"""What is read at once, mostly. Longer pieces malloc gets from the kernel each time, page by page: a batch in one piece
takes half as long again (measured)."""


class SegmentReader:
    """Reads open segments of one spool.

    Args:
        spool_id: The spool that the batches name.
    """

    def __init__(self, spool_id: str) -> None:
        self._spool_id = spool_id
        self._header: tuple[int, SegmentHeader, int] | None = None

    def read(
        self, number: int, segment: int, start: int, max_rows: int, max_bytes: int, *, final: bool
    ) -> SpooledBatch | None:
        """Return rows from an offset on, or damage; ``None`` when neither follows (yet).

        Args:
            number: The segment's number.
            segment: Its descriptor.
            start: The place behind a row, or 0.
            max_rows: Rows of a batch; of the last group all come.
            max_bytes: Most bytes of a batch of more than one row.
            final: Whether the segment gets no more bytes: what is left of it then is damage, or an unfinished frame.
        """
        found = self._read_header(number, segment)
        if found is None:
            return self._rest_as_damage(number, segment, start, start, "no header") if final else None
        header, header_end = found
        begin = max(start, header_end)
        frames = _read_window(segment, header, begin, max_rows, max_bytes)
        is_row = frames.ends and not (frames.damaged and frames.damaged[0][0] == begin)
        skipped = 0 if is_row or begin == header_end else _rows_before(segment, header, begin, header_end)
        if skipped:
            frames = _read_window(segment, header, begin - skipped, skipped + max_rows, max_bytes)
        elif frames.damaged and frames.damaged[0][0] == begin:
            damaged = os.pread(segment, frames.damaged[0][1] - begin, begin)
            return self._damage(number, start, begin, letters_of(damaged, header), f"{len(damaged)} bytes")
        good = bisect_right(frames.ends, frames.damaged[0][0]) if frames.damaged else len(frames.ends)
        if good:
            records, ends = RowRecords(header.fields, b"".join(frames.records)), frames.ends
            batch = SpooledBatch(
                self._spool_id, number, start, ends[-1], frames.lines, header.columns, records=records, ends=ends
            )
            return batch.part(skipped, good) if skipped or frames.damaged else batch
        return self._rest_as_damage(number, segment, start, begin, "no whole row follows") if final else None

    def _read_header(self, number: int, segment: int) -> tuple[SegmentHeader, int] | None:
        if self._header is not None and self._header[0] == number:
            return self._header[1], self._header[2]
        header = read_header(os.pread(segment, HEADER_READ_BYTES, 0))
        if header is not None:
            self._header = (number, *header)
        return header

    def _rest_as_damage(self, number: int, segment: int, start: int, begin: int, why: str) -> SpooledBatch | None:
        known = self._header
        header = known[1] if known is not None and known[0] == number else None
        rest = os.pread(segment, os.fstat(segment).st_size - begin, begin) if begin < os.fstat(segment).st_size else b""
        if not is_damage(rest, header):
            return None
        return self._damage(number, start, begin, letters_of(rest, header), f"{len(rest)} bytes, {why}")

    def _damage(self, number: int, start: int, begin: int, letters: Sequence[Letter], what: str) -> SpooledBatch:
        ends = [begin + letter.end for letter in letters]
        found, why = [letter.found for letter in letters], f"damaged on disk: {what}"
        return SpooledBatch(self._spool_id, number, start, ends[-1], found, damage=why, ends=ends)


def _read_window(segment: int, header: SegmentHeader, begin: int, max_rows: int, max_bytes: int) -> Frames:
    """Read on from ``begin`` up to damage, piece by piece; more than ``max_bytes`` when not even one frame fits."""
    texts: list[bytes] = []
    records: list[bytes] = []
    ends: list[int] = []
    at, size = begin, min(_PIECE_BYTES, max_bytes)
    while True:
        piece = os.pread(segment, size, at)
        found = read_frames(piece, header, at=at, max_rows=max_rows - len(ends))
        texts += found.texts
        records += found.records
        ends += found.ends
        at = found.consumed
        left = begin + max_bytes - at
        is_all = len(piece) < size or len(ends) >= max_rows or found.damaged
        if is_all or (ends and (left <= 0 or (not found.ends and size >= left))):
            return Frames(texts, records, ends, at, found.damaged)
        size = min(_PIECE_BYTES, left) if found.ends else 4 * size


def _rows_before(segment: int, header: SegmentHeader, place: int, header_end: int) -> int:
    """Return how many rows of its group lie before a place at which no frame begins."""
    if not header.has_groups or os.fstat(segment).st_size <= place:
        return 0
    begin = max(header_end, place - MAX_GROUP_ROWS)
    return rows_before(os.pread(segment, place - begin + MAX_GROUP_BYTES, begin), place - begin)
