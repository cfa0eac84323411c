"""Reads the segments of a spool: rows in batches, and what is damaged as it was found."""

import os
from bisect import bisect_right

from understudy.core.prediction_log.spool_format import SegmentHeader, is_damage, read_header, read_records
from understudy.ports.prediction_log import SpooledBatch

HEADER_READ_BYTES = 16_384


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
        header = self._read_header(number, segment)
        if header is None:
            return self._rest_as_damage(number, segment, start, start, "no header") if final else None
        columns, header_end = header[0].columns, header[1]
        begin = max(start, header_end)
        piece, rows, ends, damaged = _read_window(segment, begin, max_rows, max_bytes)
        if damaged and damaged[0][0] == 0:
            why = f"damaged on disk: {damaged[0][1]} bytes"
            return SpooledBatch(
                self._spool_id, number, start, begin + damaged[0][1], (piece[: damaged[0][1]],), columns, why
            )
        good = bisect_right(ends, damaged[0][0]) if damaged else len(rows)
        if good:
            return SpooledBatch(self._spool_id, number, start, begin + ends[good - 1], rows[:good], columns)
        return self._rest_as_damage(number, segment, start, begin, "no whole row follows") if final else None

    def _read_header(self, number: int, segment: int) -> tuple[SegmentHeader, int] | None:
        if self._header is not None and self._header[0] == number:
            return self._header[1], self._header[2]
        header = read_header(os.pread(segment, HEADER_READ_BYTES, 0))
        if header is not None:
            self._header = (number, *header)
        return header

    def _rest_as_damage(self, number: int, segment: int, start: int, begin: int, why: str) -> SpooledBatch | None:
        rest = os.pread(segment, os.fstat(segment).st_size - begin, begin) if begin < os.fstat(segment).st_size else b""
        if not is_damage(rest):
            return None
        why = f"damaged on disk: {len(rest)} bytes, {why}"
        return SpooledBatch(self._spool_id, number, start, begin + len(rest), (rest,), damage=why)


def _read_window(
    segment: int, begin: int, max_rows: int, max_bytes: int
) -> tuple[bytes, list[bytes], list[int], list[tuple[int, int]]]:
    """Read on from ``begin``, more than ``max_bytes`` when not even one row fits."""
    window = max_bytes
    while True:
        piece = os.pread(segment, window, begin)
        records = read_records(piece, 0, max_rows)
        if records.payloads or records.damaged or len(piece) < window:
            return piece, records.payloads, records.ends, records.damaged
        window *= 4
