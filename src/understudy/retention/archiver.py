"""Moves old months of the prediction log into files, in steps that may each be the last one of this process."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from understudy.core.prediction_log.archive_plan import (
    MAX_ATTEMPTS,
    ArchiveState,
    Fingerprint,
    LogPartition,
    Step,
    due,
    file_key,
    next_step,
    together,
)
from understudy.errors import ArchiveDiffers, ArchiveUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.log_archive import (
    Archive,
    ArchivedFile,
    ArchiveLedger,
    FileName,
    LogRows,
    ModelDay,
    RowSource,
    WrittenFile,
)
from understudy.retention.manifest import store_manifest

LOG_TABLE = "predictionlog"
_DIFFERING_HINT = (
    "The rows of the months that the detail names stay in Postgres. Check their files and where they lie, then run "
    "understudy db archive again."
)


class Ages(NamedTuple):
    """When a month goes, in seconds after its end."""

    after_seconds: float
    inputs_seconds: float
    """How long logged inputs are kept; a month that still has some waits as long."""


class Progress(NamedTuple):
    """How far a step has come."""

    partition_name: str
    step: Step
    rows: int
    of_rows: int


class Planned(NamedTuple):
    """What a run would do with a month."""

    partition_name: str
    start: float
    end: float
    rows: int
    first_step: Step
    """Another one than ``EXPORT`` where an earlier run was stopped."""


class Moved(NamedTuple):
    """A month that is in files."""

    partition_name: str
    start: float
    end: float
    rows: int
    files: int
    size_bytes: int
    attempts: int
    """How often its files were written: again when rows came meanwhile, or a run was killed."""


class Archiver:
    """Brings every month that is due to its end, oldest first, one after the other.

    The order is what keeps rows: a file is named in the ledger before it is written, so none is ever unknown; files are
    read back, and compared with the table, before the month is detached; detaching and telling readers of it is one
    transaction; the table is dropped last, and only by a run that has read the files back itself.

    Args:
        ledger: How far each month has come.
        rows: Reads the log and writes Parquet.
        store: Where files go.
        folder: On local disk, of this run alone; holds two files of at most a million rows at a time.
        on_progress: Told now and then, at least after each file.
    """

    def __init__(
        self,
        ledger: ArchiveLedger,
        rows: LogRows,
        store: ArchiveStore,
        *,
        folder: Path,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._ledger = ledger
        self._rows = rows
        self._store = store
        self._folder = folder
        self._on_progress = on_progress

    async def plan(self, now: float, ages: Ages) -> list[Planned]:
        """Return what :meth:`run` would do; changes nothing."""
        planned = []
        for month in await self._open_and_due(now, ages):
            if isinstance(month, Archive):
                state, table = month.state, month.detached_as or LOG_TABLE
            else:
                state, table = ArchiveState.EXPORTING, LOG_TABLE
            step = next_step(state, is_read_back=False)
            rows = sum(day.rows for day in await self._rows.days(RowSource(table, month.start, month.end)))
            name = month.partition_name if isinstance(month, Archive) else month.name
            planned.append(Planned(name, month.start, month.end, rows, step or Step.EXPORT))
        return planned

    async def run(self, now: float, ages: Ages) -> list[Moved]:
        """Move every month that is due, and those that an earlier run left on their way.

        Raises:
            ArchiveBusy: Another run archives, or a session holds the log.
            ArchiveDiffers: Files of the named months cannot be read back as they were written. Those months are where
                they were, and all others were moved.
            ArchiveUnavailable, RegistryUnavailable, MigrationNeeded: A side of it is away. Everything that was done
                stays done, and the next run goes on from there.
        """
        moved: list[Moved] = []
        differing: list[str] = []
        async with self._ledger.alone():
            await self._ledger.drop_due()
            for month in await self._open_and_due(now, ages):
                if isinstance(month, Archive):
                    archive = month
                else:
                    archive = await self._ledger.begin(month, self._store.location)
                try:
                    moved.append(await self._finish(archive))
                except ArchiveDiffers as problem:  # of one month: it must not keep the others in Postgres
                    differing.append(f"{archive.partition_name}, {problem.detail}")
            if not differing:
                await self._ledger.succeeded()
        if differing:
            detail = f"{'; '.join(differing)}; other months: {len(moved)} archived"
            raise ArchiveDiffers(detail, hint=_DIFFERING_HINT)
        return moved

    async def _open_and_due(self, now: float, ages: Ages) -> list[Archive | LogPartition]:
        """Return the months on their way, and then those that are to begin it."""
        begun = await self._ledger.open_archives()
        for archive in begun:
            if archive.location != self._store.location:
                raise ArchiveUnavailable(
                    f"{archive.partition_name} is on its way to {archive.location}, not to {self._store.location}",
                    hint=f"Finish it there first: understudy db archive --to {quote(archive.location)}",
                )
        # Late rows of a month that was detached have a partition of their own, which waits for the next run.
        names = {archive.partition_name for archive in begun}
        old = due(await self._ledger.partitions(), now, *ages)
        return [*begun, *(month for month in old if month.name not in names)]

    async def _finish(self, archive: Archive) -> Moved:
        is_read_back, attempts = False, 0
        while (step := next_step(archive.state, is_read_back=is_read_back)) is not None:
            problem = ""
            if step is Step.EXPORT:
                attempts += 1
                archive, is_read_back = await self._export(archive), False
            elif step is Step.VERIFY:
                problem = await self._problem_of(archive)
                if not problem:
                    archive, is_read_back = await self._ledger.verified(archive), True
            elif step is Step.DETACH:
                detached = await self._ledger.detach(archive)
                problem = "" if detached else "rows came while it was archived"
                archive = detached or archive
            else:
                archive = await self._ledger.drop(archive)
            if problem:
                if attempts == MAX_ATTEMPTS:
                    raise ArchiveDiffers(f"written {attempts} times: {problem}")
                archive = archive._replace(state=ArchiveState.EXPORTING)
        return await self._moved(archive)

    # -- export --------------------------------------------------------------------------------------------------------

    async def _export(self, archive: Archive) -> Archive:
        """Write all files of a month anew."""
        # First the objects, then what is known of them: after a crash in between the next run finds them again.
        await self._store.delete(name.key for name in await self._ledger.names(archive))
        archive = await self._ledger.begin_export(archive)
        source = RowSource(archive.detached_as or LOG_TABLE, archive.start, archive.end)
        days = await self._rows.days(source)
        parts: list[Fingerprint] = []
        of_rows = sum(day.rows for day in days)
        for day in days:
            await self._export_day(archive, source, day, parts, of_rows)
        files = await self._ledger.files(archive)
        await store_manifest(self._store, self._folder, archive, together(parts), files)
        return await self._ledger.end_export(archive, together(parts))

    async def _export_day(
        self, archive: Archive, source: RowSource, day: ModelDay, parts: list[Fingerprint], of_rows: int
    ) -> None:
        numbers = count()

        async def keep(file: WrittenFile) -> None:
            key = file_key(day.model_name, day.day, archive.id, archive.attempt, next(numbers))
            await self._ledger.name_file(archive, FileName(key, day.model_name, day.day))
            await self._store.put(key, file.path)
            file.path.unlink()
            rows = file.fingerprint.rows
            stored = ArchivedFile(key, day.model_name, day.day, rows, file.size_bytes, file.sha256)
            await self._ledger.add_file(archive, stored)
            parts.append(file.fingerprint)
            done = sum(part.rows for part in parts)
            self._on_progress(Progress(archive.partition_name, Step.EXPORT, done, of_rows))

        await self._rows.export(source, day, self._folder, keep)

    # -- verify --------------------------------------------------------------------------------------------------------

    async def _problem_of(self, archive: Archive) -> str:
        """Return why a month's files are not its rows; empty when they are."""
        parts: list[Fingerprint] = []
        files = await self._ledger.files(archive)
        of_rows = sum(file.rows for file in files)
        for file in files:
            read, problem = await self._read_back(file)
            if read is None:
                return problem
            parts.append(read)
            done = sum(part.rows for part in parts)
            self._on_progress(Progress(archive.partition_name, Step.VERIFY, done, of_rows))
        whole = together(parts)
        if whole != archive.fingerprint:
            return (
                f"its files hold {whole.text}, and were written with {archive.fingerprint and archive.fingerprint.text}"
            )
        held = await self._ledger.count(archive)
        if whole != held:
            return f"its files hold {whole.text}, and its table {held.text}"
        return ""

    async def _read_back(self, file: ArchivedFile) -> tuple[Fingerprint | None, str]:
        path = self._folder / "read-back.parquet"
        try:
            if not await self._store.fetch(file.key, path):
                return None, f"{file.key} is not there"
            read = await asyncio.to_thread(self._rows.inspect, path)
        except ArchiveDiffers as problem:
            return None, f"{file.key}: {problem.detail}"
        finally:
            path.unlink(missing_ok=True)
        if read.sha256 != file.sha256:
            return None, f"{file.key} is not what was written"
        return read.fingerprint, ""

    async def _moved(self, archive: Archive) -> Moved:
        files: Sequence[ArchivedFile] = await self._ledger.files(archive)
        return Moved(
            archive.partition_name,
            archive.start,
            archive.end,
            sum(file.rows for file in files),
            len(files),
            sum(file.size_bytes for file in files),
            archive.attempt,
        )
