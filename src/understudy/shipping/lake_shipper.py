"""Ships rows from the write-ahead spool into files of the lake, exactly once, beside what ships them to Postgres.

The order is: name the files in Postgres, store them, then say in one transaction that they are stored and how far the
spool has come, then forget. A process that dies in between leaves files that no transaction named as stored: the next
one begins at the same place, and the monitor deletes what is left over. Rows gather for longer than on their way to
Postgres, so that files are few and large.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import structlog

from understudy.core.prediction_log.lake import NamedFile, Place, Stretch, lake_spool
from understudy.errors import ArchiveUnavailable, MigrationNeeded, RegistryUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.lake import LakeFiles, LakeLedger
from understudy.ports.prediction_log.prediction_log import SpooledBatch, SpoolReader, SpoolShelf
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
MAX_BACK_OFF_SECONDS = 30.0
ORPHAN_SECONDS = 10.0
_MAX_PENDING = 64
_BATCH_ROWS = 10_000
_BATCH_BYTES = 2 * 1_048_576
_NOT_NOW = (RegistryUnavailable, MigrationNeeded, ArchiveUnavailable, OSError)
"""Nothing is wrong with the rows: they stay on disk, and the next turn tries again."""


class LakeShipper:
    """Ships a worker's own spool and those of dead workers.

    Args:
        shelf: Where the spools are, shared with the shipper to Postgres.
        ledger: Where files and places are written down.
        store: Where files go.
        new_files: Opens what makes them, anew for each try: a thread that outlives a cancelled one still has the old.
        telemetry: Gets rows and files written, failures, bytes waiting and for how long.
        interval_seconds: How long rows gather, at most.
        file_bytes: Bytes of the spool that make a file before that.
        look_seconds: Pause between two looks at how much waits.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        shelf: SpoolShelf,
        ledger: LakeLedger,
        store: ArchiveStore,
        new_files: Callable[[], LakeFiles],
        telemetry: Telemetry,
        *,
        interval_seconds: float,
        file_bytes: int,
        look_seconds: float = LOOK_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shelf = shelf
        self._ledger = ledger
        self._store = store
        self._new_files = new_files
        self._telemetry = telemetry
        self._interval_seconds = interval_seconds
        self._file_bytes = file_bytes
        self._look_seconds = look_seconds
        self._now = now
        self._shipped_at = now()
        self._names: dict[str, str] = {}
        """By spool id, under which name its place is kept, where that is another one."""
        self._own: tuple[SpoolReader, str, Place] | None = None
        """The own spool, its id and its place, while they are known for certain."""
        self._pending: dict[tuple[str, Place], int] = {}
        """By name and place, how many rows the files hold that could not be stored: the next try makes the same."""

    async def run(self) -> None:
        """Ship until cancelled, and say beside that how much waits: a store that hangs is seen by it alone."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._measure_again_and_again())
            both.create_task(self._ship_again_and_again())

    async def _measure_again_and_again(self) -> None:
        while True:
            with suppress(OSError):  # the other task finds out what the disk has
                self._measure()
            await asyncio.sleep(self._look_seconds)

    async def _ship_again_and_again(self) -> None:
        """Ship; while a store is away, wait longer and longer, at most half a minute."""
        pause = self._look_seconds
        next_look = 0.0
        is_failing = False
        while True:
            try:
                if self._is_due():
                    await self._ship_own(at_once=False)
                if self._now() >= next_look:
                    await self._ship_orphans()
                    next_look = self._now() + max(ORPHAN_SECONDS, self._interval_seconds)
                pause, is_failing = self._look_seconds, False
            except _NOT_NOW as problem:
                if not is_failing:
                    _log.warning("lake.waiting", problem=str(problem))
                is_failing, pause = True, min(MAX_BACK_OFF_SECONDS, pause * 2)
                self._telemetry.count("prediction_log_lake_errors_total", getattr(problem, "code", "disk"))
            await asyncio.sleep(pause)

    async def drain(self, timeout_seconds: float) -> None:
        """Ship what is left of the own spool, after :meth:`run` was cancelled; the rest stays on disk."""
        with suppress(TimeoutError, *_NOT_NOW):
            async with asyncio.timeout(timeout_seconds):
                await self._ship_own(at_once=True)
        self._measure()

    @property
    def is_all_shipped(self) -> bool:
        """Whether the own spool has no row that is not in a stored file."""
        return self._shelf.own.unshipped_bytes == 0

    def _measure(self) -> None:
        waiting = self._shelf.own.unshipped_bytes
        if waiting == 0:
            self._shipped_at = self._now()
        self._telemetry.set("prediction_log_lake_spool_bytes", waiting)
        self._telemetry.set("prediction_log_lake_waiting_seconds", max(0.0, self._now() - self._shipped_at))

    def _is_due(self) -> bool:
        is_place_known = self._own is not None and self._own[0] is self._shelf.own
        is_late = self._now() - self._shipped_at >= self._interval_seconds
        return is_late or not is_place_known or self._shelf.own.unshipped_bytes >= self._file_bytes

    async def _ship_own(self, *, at_once: bool) -> None:
        """Ship the own spool; a process that has just found its place lets rows gather first."""
        own, known = self._shelf.own, self._own
        # Forgotten on any failure, cancellation included: then only the database knows what was stored.
        self._own = None
        if known is None or known[0] is not own:
            place = await self._committed(own)
            await asyncio.to_thread(own.forget, *place)
            if not at_once and self._now() - self._shipped_at < self._interval_seconds:
                self._own = (own, own.spool_id, place)
                return
        elif known[1] != own.spool_id:
            # Until the database has it, only this process knows where the rows under the new id begin.
            self._own, place = known, known[2]
            await self._ledger.stored(Stretch(self._name_of(own), (0, 0), place), ())
            self._own = None
        else:
            place = known[2]
        began_at = self._now()
        is_late = began_at - self._shipped_at >= self._interval_seconds
        place = await self._ship(own, place, to_the_end=at_once or is_late)
        self._own = (own, own.spool_id, place)
        self._shipped_at = began_at

    async def _ship_orphans(self) -> None:
        """Ship each orphan; one that cannot be read holds up no other one."""
        with closing(self._shelf.orphans()) as orphans:
            for orphan in orphans:
                with suppress(OSError):
                    place = await self._committed(orphan)
                    await asyncio.to_thread(orphan.forget, *place)
                    await self._ship(orphan, place, to_the_end=True)

    async def _committed(self, spool: SpoolReader) -> Place:
        """Return the spool's place in the lake.

        An offset that no shipper of this spool can have written would have its rows counted as shipped. The place is
        then kept under another name, from what is known for certain on.
        """
        place = await self._ledger.committed(self._name_of(spool))
        if not spool.is_beyond(*place):
            return place
        _log.error("lake.offset_beyond_spool", spool_id=spool.spool_id, segment=place[0], byte_offset=place[1])
        self._telemetry.count("prediction_log_errors_total", "offset")
        self._names[spool.spool_id] = name = lake_spool(str(uuid4()))
        certain = spool.forgotten
        await self._ledger.stored(Stretch(name, (0, 0), certain), ())
        return certain

    def _name_of(self, spool: SpoolReader) -> str:
        return self._names.get(spool.spool_id) or lake_spool(spool.spool_id)

    async def _ship(self, spool: SpoolReader, place: Place, *, to_the_end: bool) -> Place:
        """Ship what waits behind a place, and return the new one.

        What is less than a file waits for more rows, unless all goes ``to_the_end``: a file of a few thousand rows
        costs nearly as much as one of many.
        """
        name = self._name_of(spool)
        while True:
            files = self._new_files()
            try:
                end, is_whole = await self._gather(spool, files, name, place)
                if end == place:
                    return place
                is_stored = await self._store_files(files, Stretch(name, place, end))
            finally:
                await asyncio.to_thread(files.clear)
            self._pending.pop((name, place), None)
            place = end if is_stored else await self._committed(spool)
            await asyncio.to_thread(spool.forget, *place)
            if is_stored and (is_whole or not (to_the_end or spool.unshipped_bytes >= self._file_bytes)):
                return place

    async def _gather(self, spool: SpoolReader, files: LakeFiles, name: str, place: Place) -> tuple[Place, bool]:
        """Add rows to the files until they are enough; return where they end, and whether nothing was left.

        After a failure they are as many as before.
        """
        wanted = self._pending.get((name, place))
        end, rows, size, left_out = place, 0, 0, 0
        while size < self._file_bytes if wanted is None else rows < wanted:
            most = _BATCH_ROWS if wanted is None else min(_BATCH_ROWS, wanted - rows)
            batch, unreadable = await asyncio.to_thread(_take, spool, files, end, most)
            if batch is None:
                break
            left_out += unreadable
            rows, size, end = rows + len(batch.rows), size + batch.end - batch.start, (batch.segment, batch.end)
        if rows:
            if len(self._pending) >= _MAX_PENDING:
                self._pending.clear()
            self._pending[(name, place)] = rows
        if left_out and wanted is None:
            self._telemetry.count("prediction_log_lake_rows_total", "rejected", by=left_out)
        return end, wanted is None and size < self._file_bytes

    async def _store_files(self, files: LakeFiles, stretch: Stretch) -> bool:
        async with self._ledger.shared_session():
            return await self._store_in_session(files, stretch)

    async def _store_in_session(self, files: LakeFiles, stretch: Stretch) -> bool:
        names = await self._ledger.names_of(files.version_ids())
        written, unknown = await asyncio.to_thread(files.write, stretch, names)
        until = await self._ledger.name(stretch, [file.key for file, _ in written]) if written else None
        if until is not None:
            written = [await self._erased(files, stretch, file, path, until) for file, path in written]
        named = [file for file, _ in written]
        for file, path in written:
            await self._store.put(file.key, path)
        if written and await self._ledger.name(stretch, [file.key for file in named]) != until:
            # An erasure that began meanwhile may have given these files up: they took long.
            return False
        if not await self._ledger.stored(stretch, named):
            return False
        self._telemetry.count("prediction_log_lake_rows_total", "written", by=sum(file.row_count for file in named))
        self._telemetry.count("prediction_log_lake_files_total", by=len(named))
        if unknown:
            self._telemetry.count("prediction_log_lake_rows_total", "rejected", by=unknown)
        return True

    async def _erased(
        self, files: LakeFiles, stretch: Stretch, file: NamedFile, path: Path, until: float
    ) -> tuple[NamedFile, Path]:
        """Have late rows of erased entities lose their names before anything of them is stored.

        An erasure that was not known yet when the file was named finds the name, and waits for the file. One that
        began before the file was named anew does not: then the rows are looked at once more.
        """
        seen: float | None = None
        while until != seen:
            late = await asyncio.to_thread(files.late, path, until)
            names = await self._ledger.late_names(late) if late else {}
            if not names:
                break
            file = await asyncio.to_thread(files.erase, file, path, until, names)
            seen, until = until, await self._ledger.name(stretch, [file.key]) or until
        return file, path


def _take(spool: SpoolReader, files: LakeFiles, place: Place, max_rows: int) -> tuple[SpooledBatch | None, int]:
    """Add the rows behind a place to the files; return them, and how many of them are left out. One hop for both."""
    batch = spool.read_from(*place, max_rows, _BATCH_BYTES)
    if batch is None:
        return None, 0
    return batch, len(batch.rows) if batch.damage else files.add(batch)
