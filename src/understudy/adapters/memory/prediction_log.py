"""The in-memory twins of the spool and of ``PredictionLog``: same outcomes, same fencing, no disk and no server."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from typing import NamedTuple
from uuid import uuid4

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.prediction_log.row_record import RowRecords
from understudy.core.prediction_log.spool_format import (
    encode_groups,
    encode_header,
    encode_row,
    follows,
    read_frames,
    read_header,
    rows_before,
)
from understudy.core.windows.window import Window, WindowKey, slices_alone, without_slices
from understudy.ports.monitoring.window_log import (
    MARKED_SECONDS,
    STEP_SECONDS,
    LatestWindows,
    Marks,
    window_block_start,
)
from understudy.ports.prediction_log.prediction_log import SpooledBatch, SpoolReader, WriteOutcome, WriteResult


class MemorySpool:
    """A spool in memory, with the layout of the one on disk."""

    def __init__(
        self, *, limit_bytes: int = 1_048_576, segment_bytes: int = 65_536, orphans: Sequence["MemorySpool"] = ()
    ) -> None:
        self.spool_id = str(uuid4())
        self._limit_bytes = limit_bytes
        self._segment_bytes = segment_bytes
        self._orphans = list(orphans)
        self._segments = {1: bytearray(encode_header())}
        self._forgotten = (1, 0)

    @property
    def own(self) -> SpoolReader:
        """This spool."""
        return self

    @property
    def unshipped_bytes(self) -> int:
        """Bytes that :meth:`forget` was not called for."""
        return max(0, sum(map(len, self._segments.values())) - self._forgotten[1])

    @property
    def orphans_left(self) -> int:
        """Orphaned spools (of dead workers) that still have rows, or were not read yet."""
        return len(self._orphans)

    @property
    def is_drained(self) -> bool:
        """Whether every row has been forgotten."""
        return self.read_from(*self._forgotten, 1, 1) is None

    def append(self, row: PredictionRow) -> bool:
        """Keep one row; ``False`` when the limit is reached."""
        return self._append(encode_row(row))

    def _append(self, frame: bytes) -> bool:
        if self.unshipped_bytes + len(frame) > self._limit_bytes:
            return False
        last = max(self._segments)
        if len(self._segments[last]) >= self._segment_bytes:
            last += 1
            self._segments[last] = bytearray(encode_header())
        self._segments[last] += frame
        return True

    def append_all(self, rows: Sequence[PredictionRow]) -> Collection[int]:
        """Keep several rows; each that is over the limit is dropped by itself."""
        dropped, place = [], 0
        for group in encode_groups(rows):
            there = range(place, place + group.rows)
            if not self._append(group.frame):
                dropped += [place for place in there if not self.append(rows[place])]
            place = there.stop
        return dropped

    def sync(self, on_synced: Callable[[bool], None]) -> None:
        """Call back at once: nothing here survives a power cut any better later."""
        on_synced(True)

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        """Return rows that follow this place, or ``None``."""
        for number, stored in sorted(self._segments.items()):
            start = offset if number == segment else 0
            header = read_header(bytes(stored))
            if number < segment or header is None:
                continue
            begin, fields = max(start, header[1]), header[0].fields
            skipped = rows_before(bytes(stored), begin)
            frames = read_frames(
                bytes(stored[begin - skipped :]), header[0], at=begin - skipped, max_rows=skipped + max_rows
            )
            if frames.ends:
                records, ends = RowRecords(fields, b"".join(frames.records)), frames.ends
                fitting = sum(end - start <= max_bytes for end in ends[skipped:]) or 1
                columns = header[0].columns
                return SpooledBatch(
                    self.spool_id, number, start, ends[-1], frames.lines, columns, records=records, ends=ends
                ).part(skipped, skipped + fitting)
        return None

    def forget(self, segment: int, offset: int) -> None:
        """Drop earlier segments; the last one stays."""
        if (segment, offset) > self._forgotten:
            self._forgotten = (segment, offset)
            self._segments = {number: stored for number, stored in self._segments.items() if number >= segment}

    def bytes_behind(self, segment: int, offset: int) -> int:
        """Return how many bytes follow this place."""
        following = [(number, stored) for number, stored in self._segments.items() if number >= segment]
        return sum(max(0, len(stored) - (offset if number == segment else 0)) for number, stored in following)

    @property
    def forgotten(self) -> tuple[int, int]:
        """The furthest place that :meth:`forget` was called with."""
        return self._forgotten

    def is_beyond(self, segment: int, offset: int) -> bool:
        """Whether a place lies behind the last row."""
        last = max(self._segments)
        return (segment, offset) > (last, len(self._segments[last]))

    def rename(self, spool_id: str) -> None:
        """Go on under another spool id."""
        self.spool_id = spool_id

    def orphans(self) -> Generator[SpoolReader, None, None]:
        """Yield the given orphans; those without rows are removed afterwards."""
        for orphan in list(self._orphans):
            yield orphan
            if orphan.is_drained:
                self._orphans.remove(orphan)


class DeadLetter(NamedTuple):
    """A row that the log refused."""

    spool_id: str
    segment: int
    byte_offset: int
    row: bytes
    why: str


class MemoryPredictionStore:
    """Rows in a list.

    Args:
        refuse: Returns why the "database" refuses a row, ``None`` when it accepts the row.
    """

    def __init__(self, refuse: Callable[[bytes], str | None] = lambda _row: None) -> None:
        self._refuse = refuse
        self._offsets: dict[str, tuple[int, int]] = {}
        self.rows: list[bytes] = []
        self.dead_letters: list[DeadLetter] = []
        self.windows: dict[WindowKey, Window] = {}

    async def committed(self, spool_id: str) -> tuple[int, int]:
        """Return ``(segment, offset)`` up to which the spool's rows are in the log."""
        return self._offsets.get(spool_id, (0, 0))

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        """Keep the rows and windows and move the offset, or none of it."""
        if not self._is_next(batch):
            return WriteResult(WriteOutcome.OFFSET_MOVED)
        why = self._refusal(batch.rows)
        if why is not None:
            return WriteResult(WriteOutcome.REJECTED, why)
        self.rows.extend(batch.rows)
        self.windows.update((window.key, window) for window in windows)
        self._offsets[batch.spool_id] = (batch.segment, batch.end)
        return WriteResult(WriteOutcome.WRITTEN)

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        """Keep one poison row as a dead letter and move the offset past it."""
        if not self._is_next(batch):
            return WriteOutcome.OFFSET_MOVED
        self.dead_letters.append(DeadLetter(batch.spool_id, batch.segment, batch.start, batch.rows[0], why))
        self._offsets[batch.spool_id] = (batch.segment, batch.end)
        return WriteOutcome.WRITTEN

    async def close(self) -> None:
        """Nothing is open."""

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Nothing is open."""
        return nullcontext()

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = inf) -> Sequence[Window]:
        return [without_slices(window) for window in self._of_rollout(rollout_id, since, until)]

    async def slices_of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        return [slices_alone(window) for window in self._of_rollout(rollout_id, since, until)]

    def _of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        return [w for key, w in self._in_order() if key.rollout_id == rollout_id and since <= key.start < until]

    async def marks_of_rollout(self, rollout_id: int, since: int, until: int) -> Marks:
        return await self._marks(rollout_id, since, until, growing=until)

    async def _marks(self, rollout_id: int, since: int, until: int, *, growing: int) -> Marks:
        held = await self.of_rollout(rollout_id, since, until)
        if not held:
            return Marks({}, until)
        until = min(until, window_block_start(held[0].key.start) + MARKED_SECONDS)
        blocks: dict[int, list[Window]] = {}
        for window in held:
            start = window.key.start
            if start < until:
                block = window_block_start(start) if start < growing else start // STEP_SECONDS * STEP_SECONDS
                blocks.setdefault(block, []).append(window)
        return Marks({start: f"{len(own)}:{sum(w.volume for w in own)}" for start, own in blocks.items()}, until)

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        marks = await self._marks(rollout_id, since, settled, growing=window_block_start(settled))
        return LatestWindows(await self.of_rollout(rollout_id, settled) if marks.until == settled else [], marks)

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        return [
            without_slices(window)
            for key, window in self._in_order()
            if key.model_version_id in version_ids and since <= key.start < until
        ]

    async def forget(self, before: float, at_most: int) -> int:
        """See :class:`understudy.ports.monitoring.window_log.WindowLog`; knows of no open rollouts."""
        old = [key for key, _ in self._in_order() if key.start < before][:at_most]
        for key in old:
            del self.windows[key]
        return len(old)

    def _in_order(self) -> list[tuple[WindowKey, Window]]:
        return sorted(self.windows.items(), key=lambda item: (item[0].start, item[0]))

    def _is_next(self, batch: SpooledBatch) -> bool:
        committed = self._offsets.get(batch.spool_id, (0, 0))
        return follows(committed, (batch.segment, batch.start))

    def _refusal(self, rows: Sequence[bytes]) -> str | None:
        return next((why for why in map(self._refuse, rows) if why is not None), None)
