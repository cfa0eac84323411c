"""The write-ahead spool of the prediction log: rows in local files, written before the answer is sent.

``directory/<spool id>/<segment number>.log``, one folder per worker, locked by ``flock`` while its worker lives.
A new worker adopts the folder of a dead one (an orphan), so restarts add no folders. Only the process that created a
segment appends to it: after an adoption all older segments are final, whatever their last bytes.

Open it after any fork: a forked child would share the lock.
"""

import fcntl
import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from uuid import uuid4

import structlog

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.prediction_log.spool_format import (
    FORMAT,
    FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
    SegmentHeader,
    encode_header,
    encode_row,
    is_damage,
    read_header,
    read_records,
)
from understudy.ports.prediction_log import SpooledBatch, SpoolReader

_LOCK = "lock"
_HEADER_READ_BYTES = 16_384
_RETIRED_LIMIT = 16
_CREATE_ATTEMPTS = 8
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
# macOS has no fdatasync; fsync is the closest.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class SpoolFolder:
    """The segments of one spool whose lock this process holds: reads and deletes them."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock
        numbers = self.segments()
        self._forgotten = (numbers[0] if numbers else 0, 0)
        self._header: tuple[int, SegmentHeader, int] | None = None
        self.writing: int | None = None
        """Segments before this number are final; all of them when ``None``."""
        # Each counter has one writing thread (the appender's, the shipper's), so neither needs a lock.
        self.appended_bytes = sum(self._size(number) for number in numbers)
        self.forgotten_bytes = 0

    @property
    def spool_id(self) -> str:
        """The folder's name, a UUID."""
        return self.folder.name

    @property
    def unshipped_bytes(self) -> int:
        """Bytes that :meth:`forget` was not called for."""
        return max(0, self.appended_bytes - self.forgotten_bytes)

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self.folder / f"{number:012d}.log"

    def segments(self) -> list[int]:
        """Return the numbers of the segments on disk, in order."""
        return sorted(int(path.stem) for path in self.folder.glob("*.log") if path.stem.isdecimal())

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        """Return rows that follow this place, or ``None`` when there are none (yet)."""
        for number in self.segments():
            if number < segment:
                continue
            # Checked before reading: a segment that is final now gets no bytes behind those that are read next.
            final = self.writing is None or number < self.writing
            batch = self._read_segment(number, offset if number == segment else 0, max_rows, max_bytes, final=final)
            if batch is not None or not final:
                return batch
        return None

    def forget(self, segment: int, offset: int) -> None:
        """Delete segments before this place. The last one stays: its number must not be used again."""
        number, start = self._forgotten
        if (segment, offset) <= (number, start):
            return
        # Within a segment there is nothing to delete, and listing the folder costs more than all else here.
        for old in self.segments() if segment > number else ():
            if old >= segment:
                break
            if old >= number:
                self.forgotten_bytes += max(0, self._size(old) - (start if old == number else 0))
            self.path(old).unlink(missing_ok=True)
        self.forgotten_bytes += offset - (start if number == segment else 0)
        self._forgotten = (segment, offset)

    def release(self) -> None:
        """Release the lock; a spool without unshipped rows is removed before."""
        with suppress(OSError):
            if self.writing is None and self.read_from(*self._forgotten, 1, 1) is None:
                self._remove()
        os.close(self._lock)

    def is_readable(self) -> bool:
        """Whether this process knows the format of every segment (a newer one may have written it)."""
        for number in self.segments():
            with self.path(number).open("rb") as segment:
                header = read_header(segment.read(_HEADER_READ_BYTES))
            if header is not None and header[0].format > FORMAT:
                return False
        return True

    def _remove(self) -> None:
        for number in self.segments():
            self.path(number).unlink()
        (self.folder / _LOCK).unlink()
        self.folder.rmdir()

    def _size(self, number: int) -> int:
        with suppress(FileNotFoundError):
            return self.path(number).stat().st_size
        return 0

    def _read_segment(
        self, number: int, start: int, max_rows: int, max_bytes: int, *, final: bool
    ) -> SpooledBatch | None:
        try:
            segment = os.open(self.path(number), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            header = self._read_header(number, segment)
            if header is None:
                return self._rest_as_damage(number, segment, start, start, "no header") if final else None
            columns, header_end = header[0].columns, header[1]
            begin = max(start, header_end)
            piece, rows, ends, damaged = _read_window(segment, begin, max_rows, max_bytes)
            if damaged and damaged[0][0] == 0:
                why = f"damaged on disk: {damaged[0][1]} bytes"
                return SpooledBatch(
                    self.spool_id, number, start, begin + damaged[0][1], (piece[: damaged[0][1]],), columns, why
                )
            good = bisect_right(ends, damaged[0][0]) if damaged else len(rows)
            if good:
                return SpooledBatch(self.spool_id, number, start, begin + ends[good - 1], rows[:good], columns)
            return self._rest_as_damage(number, segment, start, begin, "no whole row follows") if final else None
        finally:
            os.close(segment)

    def _read_header(self, number: int, segment: int) -> tuple[SegmentHeader, int] | None:
        if self._header is not None and self._header[0] == number:
            return self._header[1], self._header[2]
        header = read_header(os.pread(segment, _HEADER_READ_BYTES, 0))
        if header is not None:
            self._header = (number, *header)
        return header

    def _rest_as_damage(self, number: int, segment: int, start: int, begin: int, why: str) -> SpooledBatch | None:
        rest = os.pread(segment, os.fstat(segment).st_size - begin, begin) if begin < os.fstat(segment).st_size else b""
        if not is_damage(rest):
            return None
        why = f"damaged on disk: {len(rest)} bytes, {why}"
        return SpooledBatch(self.spool_id, number, start, begin + len(rest), (rest,), damage=why)


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


class Spool:
    """A worker's own spool: the request path appends to it, the shipper reads it.

    When more than ``limit_bytes`` wait to be shipped, or the disk fails, new rows are dropped: calls are still
    answered, and rows on disk were promised to be logged. The disk may hold one segment more than the limit.
    """

    def __init__(
        self,
        directory: Path,
        *,
        limit_bytes: int,
        segment_bytes: int,
        sync_seconds: float,
        on_drop: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._segment_bytes = segment_bytes
        self._sync_seconds = sync_seconds
        self._on_drop = on_drop
        directory.mkdir(parents=True, exist_ok=True)
        self.own = _adopt(directory) or _create(directory)
        # Numbered from the clock: a spool restored from a backup must not use a committed number again.
        self.own.writing = max([*self.own.segments()[-1:], int(time.time())]) + 1
        self._segment: int | None = None
        self._offset = 0
        self._is_dirty = False
        self._retired: deque[int] = deque()
        self._stop = threading.Event()
        # A daemon, so that a disk that hangs in fdatasync cannot keep the process from exiting.
        self._syncer = threading.Thread(target=self._sync_until_stopped, name="spool-sync", daemon=True)
        self._syncer.start()

    def append(self, row: PredictionRow) -> bool:
        """Write one row, in the page cache when this returns; ``False`` when it was dropped (and counted)."""
        return self._append_or_drop(encode_row(row))

    def append_all(self, rows: Sequence[PredictionRow]) -> None:
        """Write several rows by one system call; if that fails, one by one."""
        frames = [encode_row(row) for row in rows]
        for frame in frames[self._append(frames) :]:
            self._append_or_drop(frame)

    def _append_or_drop(self, frame: bytes) -> bool:
        if self._append([frame]):
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
        if segment is None or self._offset >= self._segment_bytes:
            segment = self._open_segment()
        if segment is None:
            return 0
        count, kept = len(frames), size
        landed = _write(segment, block)
        if landed != size:
            ends = [0, *accumulate(map(len, frames))]
            count = bisect_right(ends, landed) - 1
            kept = ends[count]
            self._cut(segment, self._offset + kept)
        own.appended_bytes += kept
        self._offset += kept
        self._is_dirty = True
        return count

    def orphans(self) -> Generator[SpoolReader, None, None]:
        """Yield each spool without a worker, locked until the next step; an empty one is removed by then."""
        for folder in _folders(self._directory):
            orphan = _lock(folder)
            if orphan is None:
                continue
            try:
                if orphan.is_readable():
                    yield orphan
            finally:
                orphan.release()

    def close(self) -> None:
        """Sync the written rows and release the lock; the rows stay for the next worker. Safe to call twice."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._syncer.join(timeout=self._sync_seconds + 1)
        if self._segment is not None:
            self._retired.append(self._segment)
            self._segment = None
        if not self._syncer.is_alive():
            self._sync()
        self.own.release()

    def _cut(self, segment: int, end: int) -> None:
        """Truncate the segment behind the last whole row."""
        try:
            os.ftruncate(segment, end)
        except OSError:
            self._end_segment()  # half a row stays at its end, and no row may follow it

    def _end_segment(self) -> None:
        assert self._segment is not None
        assert self.own.writing is not None
        self._retired.append(self._segment)
        self._segment = None
        self.own.writing += 1

    def _open_segment(self) -> int | None:
        """Begin the next segment; the current one is kept when the disk fails or syncing is far behind.

        ``None`` once the spool is closed: another worker may hold its lock.
        """
        if self._stop.is_set():
            return None
        assert self.own.writing is not None
        if len(self._retired) >= _RETIRED_LIMIT:
            return self._segment
        number = self.own.writing if self._segment is None else self.own.writing + 1
        header = encode_header()
        segment = _create_segment(self.own.path(number), header)
        if segment is None:
            return self._segment
        if self._segment is not None:
            self._end_segment()
        self._segment = segment
        self._offset = len(header)
        self.own.appended_bytes += len(header)
        return segment

    def _sync_until_stopped(self) -> None:
        while not self._stop.wait(self._sync_seconds):
            self._sync()

    def _sync(self) -> None:
        """Sync the written rows to the disk. Only this closes segments, so none is closed while it is synced."""
        retired = len(self._retired)
        segment = self._segment
        try:
            if retired or self._is_dirty:
                self._is_dirty = False
                for done in [self._retired[index] for index in range(retired)]:
                    _sync_data(done)
                if segment is not None:
                    _sync_data(segment)
                _sync_folder(self.own.folder)
        except OSError as error:
            structlog.get_logger(__name__).warning("spool cannot be synced", error=str(error))
        for _ in range(retired):
            os.close(self._retired.popleft())


def _write(segment: int, block: bytes) -> int:
    """Return how many bytes were written."""
    try:
        return os.write(segment, block)
    except OSError:
        return 0


def _create_segment(path: Path, header: bytes) -> int | None:
    try:
        segment = os.open(path, _APPEND, 0o600)
    except OSError:
        return None
    with suppress(OSError):
        if os.write(segment, header) == len(header):
            return segment
    os.close(segment)
    with suppress(OSError):
        path.unlink()
    return None


def _sync_folder(folder: Path) -> None:
    # A new segment survives a power cut only once its folder is synced, too.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _folders(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir())


def _adopt(directory: Path) -> SpoolFolder | None:
    """Adopt the first orphaned spool."""
    for folder in _folders(directory):
        spool = _lock(folder)
        if spool is None:
            continue
        # Without a segment the next number is unknown: such a folder is half removed, and reading orphans removes the
        # rest.
        if spool.segments() and spool.is_readable():
            return spool
        spool.writing = 0
        spool.release()
    return None


def _create(directory: Path) -> SpoolFolder:
    """Create a spool. Another worker that reads orphans may lock the folder first; then try another one."""
    for _ in range(_CREATE_ATTEMPTS):
        folder = directory / str(uuid4())
        folder.mkdir()
        spool = _lock(folder)
        if spool is not None:
            return spool
    raise OSError(f"no spool can be locked in {directory}")


def _lock(folder: Path) -> SpoolFolder | None:
    path = folder / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the folder between open and lock.
        if os.fstat(lock).st_ino == path.stat().st_ino:
            return SpoolFolder(folder, lock)
    except OSError:
        pass
    os.close(lock)
    return None
