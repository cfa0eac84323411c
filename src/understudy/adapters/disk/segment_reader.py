"""Reads the segments of a spool: rows in batches, and what is damaged as it was found."""

import os
from bisect import bisect_right

from understudy.core.prediction_log.row_record import NO_FIELDS, Fields, RowRecords
from understudy.core.prediction_log.spool_format import Frames, SegmentHeader, is_damage, read_frames, read_header
from understudy.ports.prediction_log.prediction_log import SpooledBatch

HEADER_READ_BYTES = 16_384
_ROW_BYTES = 512
"""Of most rows with their frames: what is read first, where longer ones could be many."""


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
            start: The offset of a frame, or 0.
            max_rows: Most rows of a batch.
            max_bytes: Most bytes of a batch of more than one row.
            final: Whether the segment gets no more bytes: what is left of it then is damage, or an unfinished frame.
        """
        found = self._read_header(number, segment)
        if found is None:
            return self._rest_as_damage(number, segment, start, start, "no header") if final else None
        header, header_end = found
        begin = max(start, header_end)
        piece, frames = _read_window(segment, header.fields, begin, max_rows, max_bytes)
        damaged = frames.damaged
        if damaged and damaged[0][0] == 0:
            why = f"damaged on disk: {damaged[0][1]} bytes"
            return SpooledBatch(
                self._spool_id, number, start, begin + damaged[0][1], (piece[: damaged[0][1]],), header.columns, why
            )
        good = bisect_right(frames.ends, damaged[0][0]) if damaged else len(frames.lines)
        if good:
            records = RowRecords(header.fields, b"".join(frames.records[:good]))
            end = begin + frames.ends[good - 1]
            return SpooledBatch(
                self._spool_id, number, start, end, frames.lines[:good], header.columns, records=records
            )
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
        fields = known[1].fields if known is not None and known[0] == number else NO_FIELDS
        rest = os.pread(segment, os.fstat(segment).st_size - begin, begin) if begin < os.fstat(segment).st_size else b""
        if not is_damage(rest, fields):
            return None
        why = f"damaged on disk: {len(rest)} bytes, {why}"
        return SpooledBatch(self._spool_id, number, start, begin + len(rest), (rest,), damage=why)


def _read_window(segment: int, fields: Fields, begin: int, max_rows: int, max_bytes: int) -> tuple[bytes, Frames]:
    """Read on from ``begin``, more than ``max_bytes`` when not even one row fits."""
    window = min(max_bytes, max_rows * _ROW_BYTES)
    while True:
        piece = os.pread(segment, window, begin)
        frames = read_frames(piece, fields, 0, max_rows)
        is_all = len(piece) < window or len(frames.lines) == max_rows or frames.damaged
        if is_all or (frames.lines and window >= max_bytes):
            return piece, frames
        window = max_bytes if window < max_bytes else 4 * window
