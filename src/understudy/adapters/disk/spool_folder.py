"""One worker's folder of the spool: its lock, its segments as they are read, and the room that is given back.

``directory/<spool id>/<segment number>.log``, locked by ``flock`` while its worker lives. Only the process that created
a segment appends to it: after an adoption all older segments are final, whatever their last bytes.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from understudy.adapters.disk.files import DiskFiles, make_folders
from understudy.adapters.disk.segment_descriptors import SegmentDescriptors
from understudy.adapters.disk.segment_reader import HEADER_READ_BYTES, SegmentReader
from understudy.adapters.disk.spool_identity import IDENTITY, SPOOL_ID, keep_identity, read_identity
from understudy.core.prediction_log.spool_format import FORMAT, read_header
from understudy.ports.prediction_log.prediction_log import SpooledBatch

RESERVE = "reserve"
MAX_ADOPTED = 10**12
"""Numbers begin at the clock's seconds. A folder with a segment from here on has a foreign file: its rows are shipped,
but no worker goes on in it, whose own numbers could pass those that segments have, and what a BIGINT holds."""
_LOCK = "lock"
_CREATE_ATTEMPTS = 8
_TAIL_BYTES = 4_096
_CLOCK_SECONDS = 86_400
"""How far the clock that numbered a segment may have been ahead of this process's."""


class SpoolFolder:
    """The segments of one spool whose lock this process holds: reads them, and gives back the room of shipped ones.

    One thread appends, another one ships.
    """

    def __init__(
        self, folder: Path, lock: int, files: DiskFiles, on_failure: Callable[[str], None] = lambda _kind: None
    ) -> None:
        self.folder = folder
        self._lock = lock
        self._files = files
        self._on_failure = on_failure
        self._segments = SegmentDescriptors(folder)
        self._spool_id = read_identity(folder)
        self._reader = SegmentReader(self._spool_id)
        self._turn = threading.Lock()
        """Of shipping: at the end of a process, its last turn may overlap with the one that was cancelled."""
        numbers = self.segments()
        self._forgotten = (numbers[0] if numbers else 0, 0)
        self._emptied = -1
        self._named = -1
        self.newest = numbers[-1] if numbers else -1
        """Number of the newest segment, -1 without one."""
        self.writing: int | None = None
        """Segments before this number are final; all of them when ``None``."""
        # Each counter has one writing thread (the appender's, the shipper's), so neither needs a lock.
        self.appended_bytes = sum(self._segments.size(number) for number in numbers)
        self.forgotten_bytes = 0

    @property
    def spool_id(self) -> str:
        """A UUID: the folder's name, until :meth:`rename`."""
        return self._spool_id

    @property
    def unshipped_bytes(self) -> int:
        """Bytes that :meth:`forget` was not called for."""
        return max(0, self.appended_bytes - self.forgotten_bytes)

    def bytes_behind(self, segment: int, offset: int) -> int:
        """Return how many bytes on disk follow this place."""
        following = [number for number in self.segments() if number >= segment]
        sizes = (self._segments.size(number) - (offset if number == segment else 0) for number in following)
        return sum(max(0, size) for size in sizes)

    @property
    def forgotten(self) -> tuple[int, int]:
        """The furthest place that :meth:`forget` was called with; before that the beginning of the first segment."""
        return self._forgotten

    @property
    def is_in_place(self) -> bool:
        """Whether the folder at this path is still the one that is locked: it may be deleted, moved or mounted over."""
        try:
            found, own = (self.folder / _LOCK).stat(), os.fstat(self._lock)
        except OSError:
            return False
        return (found.st_ino, found.st_dev) == (own.st_ino, own.st_dev)

    @property
    def is_drained(self) -> bool:
        """Whether nothing follows the place that was forgotten last."""
        with self._turn:
            return self._read_from(*self._forgotten, 1, 1) is None

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self._segments.path(number)

    def segments(self) -> list[int]:
        """Return the numbers of the segments, in order."""
        return self._segments.numbers()

    def hold(self) -> None:
        """Keep the segments that are there readable, whatever becomes of their names."""
        self._segments.hold()

    def begin(self, number: int, segment: int) -> None:
        """Know of a segment that this process has created and has open."""
        self._segments.add(number, segment)
        self.newest = number

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        """Return rows that follow this place, or ``None`` when there are none (yet)."""
        with self._turn:
            return self._read_from(segment, offset, max_rows, max_bytes)

    def _read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        for number in self.segments():
            if number < segment:
                continue
            # Checked before reading: a segment that is final now gets no bytes behind those that are read next.
            final = self._is_final(number)
            self._sync_name(number)
            batch = self._read_segment(number, offset if number == segment else 0, max_rows, max_bytes, final=final)
            if batch is not None or not final:
                return batch
        return None

    def forget(self, segment: int, offset: int) -> None:
        """Give back the room before this place, up to a final segment's end.

        The last segment keeps its name: its number must not be used again. What cannot be deleted is counted, and keeps
        no row from being shipped.
        """
        with self._turn:
            self._segments.close_discarded()
            number, start = self._forgotten
            if (segment, offset) > (number, start):
                for old in self.segments() if segment > number else ():
                    if old >= segment:
                        break
                    if old >= number:
                        self.forgotten_bytes += max(0, self._segments.size(old) - (start if old == number else 0))
                    self._segments.remove(old)
                    self._delete_file(old)
                # A process before may have emptied it: what is not there any more was never counted as appended.
                there = min(offset, self._segments.size(segment))
                self.forgotten_bytes += max(0, there - (start if number == segment else 0))
                self._forgotten = (segment, offset)
            if segment != self._emptied and segment in self._segments and self._is_final(segment):
                self._empty_if_shipped(segment, offset)

    def is_beyond(self, segment: int, offset: int) -> bool:
        """Whether a place lies where no segment of this spool can be, so that no shipper of it has come so far.

        Of a spool without a worker only a number of the distant future is: a folder from a backup may be behind its
        offset, and its rows are shipped.
        """
        if self.writing is None:
            return segment > max(self.newest, int(time.time())) + _CLOCK_SECONDS
        if self.newest < self.writing:
            return segment >= self.writing
        return (segment, offset) > (self.writing, self._segments.size(self.newest))

    def rename(self, spool_id: str) -> None:
        """Go on under a spool id that was never used. Where the disk refuses to keep it, it holds until a restart."""
        try:
            keep_identity(self.folder, spool_id, self._files)
        except OSError:
            self._on_failure("folder")
        with self._turn:
            self._spool_id = spool_id
            self._reader = SegmentReader(spool_id)

    def release(self) -> None:
        """Release the lock; a spool without unshipped rows is removed before."""
        with suppress(OSError):
            if self.writing is None and self.is_in_place and self.is_drained:
                self._remove()
        self._segments.close_all()
        os.close(self._lock)

    def sync(self, number: int) -> None:
        """Let a segment survive a power cut."""
        with suppress(FileNotFoundError):
            segment = os.open(self.path(number), os.O_RDONLY)
            try:
                self._files.sync(segment)
            finally:
                os.close(segment)

    def discard(self, number: int) -> None:
        """Delete a segment that holds no row. The appender calls it, perhaps while the segment is read."""
        self._segments.discard(number)
        if self._turn.acquire(blocking=False):
            self._segments.close_discarded()
            self._turn.release()
        self._delete_file(number)

    def is_readable(self) -> bool:
        """Whether this process knows the format of every segment (a newer one may have written it)."""
        for number in self.segments():
            with self.path(number).open("rb") as segment:
                header = read_header(segment.read(HEADER_READ_BYTES))
            if header is not None and header[0].format > FORMAT:
                return False
        return True

    def _remove(self) -> None:
        for name in [*(self.path(number).name for number in self.segments()), RESERVE, IDENTITY]:
            with suppress(FileNotFoundError):
                self._files.delete(self.folder / name)
        self._files.delete(self.folder / _LOCK)
        self._files.delete_folder(self.folder)

    def _is_final(self, number: int) -> bool:
        return self.writing is None or number < self.writing

    def _sync_name(self, number: int) -> None:
        """Let a segment's name survive a power cut before any row of it is in the log.

        Otherwise the next process could use the number again, and its rows would count as shipped.
        """
        if number > self._named:
            self._named = self.newest
            with suppress(OSError):  # the folder may be gone, and its rows are shipped all the same
                self._files.sync_folder(self.folder)

    def _empty_if_shipped(self, number: int, offset: int) -> None:
        left = self._segments.size(number) - offset
        if left > 0 and self._read_segment(number, offset, 1, _TAIL_BYTES, final=True) is not None:
            return
        self._emptied = number
        self.forgotten_bytes += max(0, left)
        self._segments.close(number)
        if self.is_in_place:
            self._change(self._files.empty, number)

    def _delete_file(self, number: int) -> None:
        # What another process has put in this place is not ours to delete.
        if self.is_in_place and not self._change(self._files.delete, number):
            self._change(self._files.empty, number)

    def _change(self, change: Callable[[Path], None], number: int) -> bool:
        try:
            change(self.path(number))
        except FileNotFoundError:
            return True
        except OSError:
            self._on_failure("delete")
            return False
        return True

    def _read_segment(
        self, number: int, start: int, max_rows: int, max_bytes: int, *, final: bool
    ) -> SpooledBatch | None:
        with self._segments.opened(number) as segment:
            if segment is None:
                return None
            return self._reader.read(number, segment, start, max_rows, max_bytes, final=final)


def folders_in(directory: Path) -> list[Path]:
    """Return the folders of all spools, living and dead; none when the directory is gone.

    A spool's name is a UUID. Another folder is left alone: of a copy that an operator made, the rows would count twice.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path for path in directory.iterdir() if SPOOL_ID.fullmatch(path.name) and path.is_dir())
    return []


def bytes_in(directory: Path) -> int:
    """Return the bytes of all spools' segments; rows of a segment that is not over count also once they are shipped.

    Raises:
        OSError: This process may not list a folder, or the disk fails.
    """
    found = 0
    for folder in folders_in(directory):
        with suppress(FileNotFoundError):  # its worker has removed it
            for segment in folder.iterdir():  # glob() would find nothing in a folder that it may not list
                if segment.suffix == ".log":
                    with suppress(FileNotFoundError):
                        found += segment.stat().st_size
    return found


def adopt(directory: Path, files: DiskFiles, on_failure: Callable[[str], None]) -> SpoolFolder | None:
    """Adopt the first orphaned spool."""
    for folder in folders_in(directory):
        spool = lock(folder, files, on_failure)
        if spool is None:
            continue
        # Without a segment the next number is unknown: such a folder is half removed, and reading orphans removes the
        # rest.
        if spool.segments() and spool.newest < MAX_ADOPTED and spool.is_readable():
            spool.hold()
            return spool
        spool.writing = 0
        spool.release()
    return None


def create(directory: Path, files: DiskFiles, on_failure: Callable[[str], None]) -> SpoolFolder:
    """Create a spool, whose name survives a power cut.

    Another worker that reads orphans may lock the folder first; then try another one.

    Raises:
        OSError: The directory cannot be written.
    """
    make_folders(directory, files)
    for _ in range(_CREATE_ATTEMPTS):
        folder = directory / str(uuid4())
        files.make_folder(folder)
        spool = lock(folder, files, on_failure)
        if spool is not None:
            files.sync_folder(directory)
            return spool
    raise OSError(f"no spool can be locked in {directory}")


def lock(folder: Path, files: DiskFiles, on_failure: Callable[[str], None]) -> SpoolFolder | None:
    """Lock a spool's folder; ``None`` while another worker has it."""
    path = folder / _LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the folder between open and lock.
        if os.fstat(handle).st_ino == path.stat().st_ino:
            return SpoolFolder(folder, handle, files, on_failure)
    except OSError:
        pass
    os.close(handle)
    return None
