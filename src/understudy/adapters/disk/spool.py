"""The write-ahead spool of the prediction log: rows in local files, written before the answer is sent.

One folder per worker, see :mod:`understudy.adapters.disk.spool_folder`. A new worker adopts the folder of a dead one
(an orphan), so restarts add no folders.

Open it after any fork: a forked child would share the lock.
"""

import errno
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles, create_beginning_with, make_folders
from understudy.adapters.disk.spool_folder import SpoolFolder, adopt, create, folders_in, lock
from understudy.adapters.disk.spool_keeper import OnSynced, SpoolKeeper
from understudy.adapters.disk.spool_reserve import Reserve
from understudy.core.prediction_log.row import PredictionRow
from understudy.core.prediction_log.spool_format import (
    FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
    encode_groups,
    encode_header,
    encode_row,
)
from understudy.ports.prediction_log.prediction_log import SpoolReader

RESERVE_BYTES = 65_536
RETRY_SECONDS = 0.2
"""Pause before another segment is tried when one could not be created."""
_RETIRED_LIMIT = 16
_PASSES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE})
"""The disk is full, or the process has no descriptor left: another folder helps neither."""


class Spool:
    """A worker's own spool: the request path appends to it, the shipper reads it.

    When more than ``limit_bytes`` wait to be shipped, or the disk fails, new rows are dropped: calls are still
    answered, and rows on disk were promised to be logged. The disk may hold one segment more than the limit.

    Segments become shorter as the volume fills, and one that a full disk cut short is over: its room is given back once
    it is shipped. As long as rows are shipped, the next one gets the reserve. A folder that was deleted, moved or made
    read-only is left to be shipped from the segments that are open, and another one takes its place.

    Args:
        directory: Where the spools of all workers are.
        limit_bytes: Most bytes that wait to be shipped.
        segment_bytes: Size at which a segment is over, or before where the volume has little room left.
        sync_seconds: Longest time between two syncs.
        on_drop: Counts a row that is dropped.
        on_failure: Counts a failure of the disk by its kind: ``full``, ``folder``, ``sync`` or ``delete``.
        files: Changes the disk.
        reserve_bytes: Room that is kept on the volume.

    Raises:
        OSError: The directory cannot be written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int,
        segment_bytes: int,
        sync_seconds: float,
        on_drop: Callable[[], None] = lambda: None,
        on_failure: Callable[[str], None] = lambda _kind: None,
        files: DiskFiles | None = None,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self._directory = directory
        self._max_bytes = self._limit_bytes = limit_bytes
        self._roll_at = segment_bytes
        self._on_drop = on_drop
        self._on_failure = on_failure
        self._files = DiskFiles() if files is None else files
        self._write = self._files.write
        make_folders(directory, self._files)
        self.own = adopt(directory, self._files, on_failure) or create(directory, self._files, on_failure)
        # Numbered from the clock: a spool restored from a backup must not use a committed number again.
        self.own.writing = max(self.own.newest, int(time.time())) + 1
        self._left: list[SpoolFolder] = []
        self._segment: int | None = None
        self._offset = self._header_bytes = 0
        self._retry_at = 0.0
        self._reserve = Reserve(self._files, reserve_bytes)
        self._keeper = SpoolKeeper(
            directory,
            self.own,
            self._files,
            segment_bytes=segment_bytes,
            sync_seconds=sync_seconds,
            reserve=self._reserve,
            on_failure=on_failure,
            end_segment=self._end_segment_at,
        )
        self._keeper.start()

    def append(self, row: PredictionRow) -> bool:
        """Write one row, in the page cache when this returns; ``False`` when it was dropped (and counted)."""
        return self._append_or_drop(encode_row(row))

    def append_all(self, rows: Sequence[PredictionRow]) -> Collection[int]:
        """Write several rows by one system call; if that fails, one by one. Return the places of dropped ones."""
        groups = encode_groups(rows)
        written = self._append([one.frame for one in groups])
        if written == len(groups):
            return ()
        first = sum(one.rows for one in groups[:written])
        return {place for place in range(first, len(rows)) if not self.append(rows[place])}

    def sync(self, on_synced: OnSynced) -> None:
        """Call back, in another thread, when all rows that were written so far are on the disk, or cannot be."""
        self._keeper.sync(on_synced)

    def orphans(self) -> Generator[SpoolReader, None, None]:
        """Yield each spool without a worker, locked until the next step; an empty one is removed by then.

        First come the folders that this worker lost: as long as it lives, their open segments can be read.
        """
        for folder in list(self._left):
            yield folder
            if folder.is_drained:
                self._left.remove(folder)
                folder.release()
        for path in folders_in(self._directory):
            orphan = lock(path, self._files, self._on_failure)
            if orphan is None:
                continue
            try:
                if orphan.is_readable():
                    yield orphan
            finally:
                orphan.release()
        self._limit_bytes = self._max_bytes - sum(folder.unshipped_bytes for folder in self._left)

    def close(self) -> None:
        """Sync the written rows and release the lock; the rows stay for the next worker. Safe to call twice."""
        if self._keeper.is_stopped:
            return
        self._segment = None
        self._keeper.stop()
        for folder in [self.own, *self._left]:
            folder.release()

    def _append_or_drop(self, frame: bytes) -> bool:
        # Once more when the disk has just ended the segment: it may take another one.
        if self._append([frame]) or (self._segment is None and self._append([frame])):
            return True
        self._on_drop()
        return False

    def _append(self, frames: Sequence[bytes]) -> int:
        """Write frames by one system call; return how many were written whole, from the first on.

        Whole frames stay, since a reader may have seen them already.
        """
        block = b"".join(frames)
        size = len(block)
        own = self.own
        if (
            own.appended_bytes - own.forgotten_bytes + size > self._limit_bytes
            or max(map(len, frames)) > MAX_PAYLOAD_BYTES + FRAME_BYTES
        ):
            return 0
        segment = self._segment
        if segment is None or self._offset >= self._roll_at:
            segment = self._next_segment()
            if segment is None:
                return 0
            own = self.own
        try:
            landed = self._write(segment, block)
        except OSError as problem:
            return self._cut_short(frames, 0, problem)
        if landed != size:
            return self._cut_short(frames, landed)
        own.appended_bytes += size
        self._offset += size
        return len(frames)

    def _cut_short(self, frames: Sequence[bytes], landed: int, problem: OSError | None = None) -> int:
        """Keep the whole frames of what landed, and end the segment: once it is shipped, its room is given back."""
        assert self._segment is not None
        ends = [0, *accumulate(map(len, frames))]
        count = bisect_right(ends, landed) - 1
        self._offset += ends[count]
        self.own.appended_bytes += ends[count]
        with suppress(OSError):  # half a row stays at its end then, and no row follows it
            self._files.cut(self._segment, self._offset)
        self._fail(problem)
        self._end_segment()
        if self._offset == self._header_bytes:
            self._discard_segment()
        return count

    def _discard_segment(self) -> None:
        """Delete the segment that has ended without a row: a full disk leaves one at each attempt."""
        assert self.own.writing is not None
        self.own.discard(self.own.writing - 1)
        self.own.appended_bytes -= self._header_bytes
        if not self._make_room():
            self._retry_at = time.monotonic() + RETRY_SECONDS

    def _make_room(self) -> bool:
        """Give up the reserve unless rows wait and none is shipped: then the room would soon be as full as before."""
        is_flowing = self.own.unshipped_bytes == 0 or self._keeper.is_shipping
        return is_flowing and self._reserve.give_up()

    def _fail(self, problem: OSError | None) -> None:
        """Count a failure of the disk; a full one is waited for, any other costs the folder its place."""
        is_full = problem is None or problem.errno in _PASSES
        self._on_failure("full" if is_full else "folder")
        if not is_full:
            self._keeper.renew()

    def _end_segment(self) -> None:
        assert self._segment is not None
        assert self.own.writing is not None
        self._keeper.segment = None
        self._keeper.retired.append(self._segment)
        self._segment = None
        self.own.writing += 1

    def _end_segment_at(self, size: int) -> None:
        self._roll_at = min(self._roll_at, size)

    def _next_segment(self) -> int | None:
        """Begin the next segment; the current one is kept when the disk fails or syncing is far behind.

        ``None`` once the spool is closed: another worker may hold its lock.
        """
        if self._keeper.is_stopped:
            return None
        if len(self._keeper.retired) >= _RETIRED_LIMIT or time.monotonic() < self._retry_at:
            return self._current()
        fresh = self._keeper.take_fresh()
        try:
            self._begin_in(self.own if fresh is None else fresh)
        except OSError as problem:
            self._fail(problem)
            if fresh is not None:
                self._keeper.put_back(fresh)
            if not (problem.errno in _PASSES and self._make_room() and self._can_begin()):
                self._retry_at = time.monotonic() + RETRY_SECONDS
        return self._current()

    def _can_begin(self) -> bool:
        with suppress(OSError):
            self._begin_in(self.own)
            return True
        return False

    def _begin_in(self, folder: SpoolFolder) -> None:
        """Begin a segment in the own folder, or leave that for another one.

        A folder that is left is shipped from then on as an orphan is.
        """
        header = encode_header()
        if folder is self.own:
            assert folder.writing is not None
            number = folder.writing if self._segment is None else folder.writing + 1
        else:
            number = int(time.time()) + 1
        segment = create_beginning_with(header, folder.path(number), self._files)
        if self._segment is not None:
            self._end_segment()
        if folder is not self.own:
            self.own.writing = None
            self._left.append(self.own)
            folder.writing = number
            self._keeper.own = self.own = folder
        folder.begin(number, segment)
        folder.appended_bytes += len(header)
        self._segment = self._keeper.segment = segment
        self._offset = self._header_bytes = len(header)
        self._roll_at = self._keeper.segment_bytes

    def _current(self) -> int | None:
        """Return the segment that is written, unless it is as long as all of them may be."""
        return self._segment if self._offset < self._max_bytes else None
