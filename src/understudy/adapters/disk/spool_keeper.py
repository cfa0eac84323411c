"""The thread beside a spool: syncs its segments, keeps its reserve, and makes its folder again when that is lost."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import structlog

from understudy.adapters.disk.files import DiskFiles
from understudy.adapters.disk.spool_folder import SpoolFolder, create
from understudy.adapters.disk.spool_reserve import Reserve

LOOK_SECONDS = 1.0
"""Longest time between two looks at the folder and its volume."""
MIN_SEGMENT_BYTES = 8_192
_ROOM_OF_SEGMENT = 1 / 8
"""Longest segment as a share of the room that is left on the volume: shipped rows of the open segment keep theirs."""

_log = structlog.get_logger(__name__)

OnSynced = Callable[[bool], None]
"""Called in the keeper's thread: whether all rows that were written before it was handed over are on the disk."""


class SpoolKeeper:
    """What the appender must not wait for.

    The appender sets :attr:`own`, :attr:`segment` and :attr:`retired`; the keeper syncs and closes them.

    Args:
        directory: Where the spools are.
        own: The worker's spool.
        files: Changes the disk.
        segment_bytes: Longest segment, while there is room for several.
        sync_seconds: Longest time between two syncs.
        reserve: Room that is kept on the volume.
        on_failure: Counts a kind of failure.
        end_segment: Asks the appender for another segment once the open one has so many bytes.
    """

    def __init__(
        self,
        directory: Path,
        own: SpoolFolder,
        files: DiskFiles,
        *,
        segment_bytes: int,
        sync_seconds: float,
        reserve: Reserve,
        on_failure: Callable[[str], None],
        end_segment: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._files = files
        self._sync_seconds = sync_seconds
        self._reserve = reserve
        self._on_failure = on_failure
        self._end_segment = end_segment
        self._most_bytes = segment_bytes
        self.segment_bytes = segment_bytes
        """Longest segment now, by the room that is left."""
        self.is_shipping = False
        """Whether rows were shipped between the last two looks."""
        self._forgotten = (own, own.forgotten_bytes)
        self.own = own
        self.segment: int | None = None
        """Descriptor of the segment that is written."""
        self.retired: deque[int] = deque()
        """Descriptors of segments that get no more rows, to be synced and closed."""
        self._fresh: deque[SpoolFolder] = deque()
        """At most one: a folder that stands ready to take the place of the own one."""
        self._is_lost = False
        self._synced: tuple[SpoolFolder | None, int, int] = (None, -1, 0)
        self._doubtful: tuple[SpoolFolder | None, int] = (None, -1)
        """After a failed sync: the folder, and its last segment of which rows may be lost though it is synced again."""
        self._waiting: deque[tuple[OnSynced, SpoolFolder, int]] = deque()
        """Who waits, and the segment of the last row that was written by then."""
        self._stop = threading.Event()
        self._wake = threading.Event()
        # A daemon, so that a disk that hangs in fdatasync cannot keep the process from exiting.
        self._thread = threading.Thread(target=self._run, name="spool-keeper", daemon=True)

    @property
    def is_stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stop.is_set()

    def start(self) -> None:
        """Begin to keep the spool."""
        self._look()
        self._thread.start()

    def sync(self, on_synced: OnSynced) -> None:
        """Have all rows that were written so far synced as soon as the disk is free, and call back."""
        own = self.own
        self._waiting.append((on_synced, own, own.newest))
        self._wake.set()

    def renew(self) -> None:
        """Make another folder as soon as possible: in the own one no segment can be created."""
        self._is_lost = True
        self._wake.set()

    def take_fresh(self) -> SpoolFolder | None:
        """Return a folder to go on in, when the own one is lost and another one was made."""
        try:
            return self._fresh.popleft()
        except IndexError:
            return None

    def put_back(self, fresh: SpoolFolder) -> None:
        """Keep a folder that was taken for later: no segment can be created in it yet."""
        self._fresh.append(fresh)

    def stop(self) -> None:
        """End the thread and sync what is left."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=self._sync_seconds + 1)
        if self.segment is not None:
            self.retired.append(self.segment)
            self.segment = None
        if not self._thread.is_alive():
            self._sync()
        fresh = self.take_fresh()
        if fresh is not None:
            fresh.release()

    def _run(self) -> None:
        self._sync_adopted()
        next_look = 0.0
        while not self._stop.is_set():
            self._wake.wait(min(self._sync_seconds, LOOK_SECONDS))
            self._wake.clear()
            self._sync()
            if self._is_lost or time.monotonic() >= next_look:
                self._look()
                next_look = time.monotonic() + LOOK_SECONDS

    def _sync_adopted(self) -> None:
        """Sync what the last worker of this folder wrote: it may have been killed before it did."""
        try:
            for number in self.own.segments():
                self.own.sync(number)
        except OSError as error:
            self._failed("sync", error)

    def _look(self) -> None:
        """Make another folder when the own one is lost, and fill the reserve."""
        try:
            if self._fresh:
                self._is_lost = False
                self._drop_lost_fresh()
            elif self._is_lost or not self.own.is_in_place:
                self._failed("folder", "the spool's folder is gone, or nothing can be created in it")
                self._fresh.append(create(self._directory, self._files, self._on_failure))
                self._is_lost = False
                self._end_segment(0)
            self._fit()
            self._reserve.fill(self.own.folder)
        except OSError as error:
            self._failed("folder", error)

    def _fit(self) -> None:
        """Make segments shorter as the volume fills: only a segment that is over gives back the room of its rows."""
        own = self.own
        volume = os.statvfs(own.folder)
        room = int(volume.f_bavail * volume.f_frsize * _ROOM_OF_SEGMENT)
        self.segment_bytes = min(self._most_bytes, max(MIN_SEGMENT_BYTES, room))
        self._end_segment(self.segment_bytes)
        self.is_shipping = self._forgotten[0] is own and own.forgotten_bytes > self._forgotten[1]
        self._forgotten = (own, own.forgotten_bytes)

    def _drop_lost_fresh(self) -> None:
        if not self._fresh[0].is_in_place:
            fresh = self.take_fresh()
            if fresh is not None:
                fresh.release()

    def _failed(self, kind: str, why: object) -> None:
        self._on_failure(kind)
        _log.warning("spool.failed", kind=kind, folder=str(self.own.folder), why=str(why))

    def _sync(self) -> None:
        """Sync the written rows to the disk. Only this closes segments, so none is closed while it is synced."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        # In this order: rows that are counted are in a segment that is found next, as the current or as a retired one.
        own = self.own
        state = (own, own.newest, own.appended_bytes)
        segment = self.segment
        retired = len(self.retired)
        is_synced = True
        if retired or state != self._synced:
            is_synced = self._try_to_sync([*(self.retired[index] for index in range(retired)), segment], state)
        for _ in range(retired):
            os.close(self.retired.popleft())
        for on_synced, folder, number in waiting:
            on_synced(is_synced and not (folder is self._doubtful[0] and number <= self._doubtful[1]))

    def _try_to_sync(self, segments: list[int | None], state: tuple[SpoolFolder, int, int]) -> bool:
        try:
            for segment in segments:
                if segment is not None:
                    self._files.sync(segment)
            if state[:2] != self._synced[:2] and state[0].is_in_place:
                self._files.sync_folder(state[0].folder)
        except OSError as error:
            self._failed("sync", error)
            # After a failed sync the kernel may hold pages as clean that are not on the disk, and says so only once:
            # rows that were written meanwhile are in doubt as well, and later rows go elsewhere.
            self._doubtful = (self.own, self.own.newest)
            self._end_segment(0)
            return False
        self._synced = state
        return True
