"""Rows that one shipper read and another one has still to read: to read them again costs half a microsecond a row."""

import threading
from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from understudy.core.prediction_log.lake import Place
from understudy.ports.prediction_log.prediction_log import SpooledBatch

MAX_BYTES = 16 * 1_048_576
"""Of the spool, in all: about what one file of the lake is made of. What is beyond is read from the disk twice."""


class _Kept(NamedTuple):
    shipper: int
    asked: Place
    """The place whose next rows these are: the end of a segment, where they begin the one behind it."""
    batch: SpooledBatch


class KeptBatches:
    """Batches of one spool, in its order. Shippers ask from threads of their own.

    Args:
        max_bytes: Most bytes of the spool that are kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, shipper: int, place: Place, max_rows: int) -> SpooledBatch | None:
        """Return the rows that follow a place if another shipper has read them, and drop what lies before it.

        They are fewer than ``max_rows`` where a batch ends before that.
        """
        with self._lock:
            while self._kept and self._kept[0].shipper != shipper and _end(self._kept[0].batch) <= place:
                self._drop_first()
            if not self._kept or self._kept[0].shipper == shipper:
                return None
            first = self._kept[0]
        return _from(first, place, max_rows)

    def keep(self, shipper: int, asked: Place, batch: SpooledBatch) -> None:
        """Keep what a shipper read, unless there is no room, or another one's rows are kept: it is the one behind."""
        with self._lock:
            if batch.damage or (self._kept and self._kept[0].shipper != shipper):
                return
            # What was read before, but not shipped, is read once more with what came behind it.
            while self._kept and _end(self._kept[-1].batch) > (batch.segment, batch.start):
                self._drop_last()
            size = batch.end - batch.start
            if self._bytes + size <= self._max_bytes:
                self._kept.append(_Kept(shipper, asked, batch))
                self._bytes += size

    def _drop_first(self) -> None:
        dropped = self._kept.popleft().batch
        self._bytes -= dropped.end - dropped.start

    def _drop_last(self) -> None:
        dropped = self._kept.pop().batch
        self._bytes -= dropped.end - dropped.start


def _end(batch: SpooledBatch) -> Place:
    return batch.segment, batch.end


def _from(kept: _Kept, place: Place, max_rows: int) -> SpooledBatch | None:
    """Return the kept rows that follow a place; ``None`` when others lie between, or it is no row's beginning."""
    batch, (segment, offset) = kept.batch, place
    first = 0
    if kept.asked != place:
        first = bisect_left(batch.ends, offset) + 1
        if segment != batch.segment or first >= len(batch.ends) or batch.ends[first - 1] != offset:
            return None
    stop = min(first + max_rows, len(batch.rows))
    return batch if stop - first == len(batch.rows) else batch.part(first, stop)
