"""Erases one entity from the log, outcomes, dead letters and the archive, in steps after each of which it may stop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from understudy import DISTRIBUTION
from understudy.core.prediction_log.archive_plan import MAX_QUOTED_KEY, ArchiveState, Fingerprint
from understudy.core.prediction_log.erasure import EntityRows, Erased, first_key, replacing_key
from understudy.errors import ArchiveDiffers, ArchiveUnavailable, LakeUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.entity_erasure import Erasure, ErasureLedger, FileEraser, Replacement
from understudy.ports.prediction_log.log_archive import Archive, ArchivedFile
from understudy.retention.lake_eraser import LakeEraser, LakeRows
from understudy.retention.manifest import store_manifest

LAKE = "the lake"
"""In place of a month's name."""
_IN_FILES = (ArchiveState.DETACHED, ArchiveState.ARCHIVED)
Tell = Callable[[str, int, int], None]
"""Told what is done, how much of it, and of how much."""


class Left(NamedTuple):
    """A month, or the lake, whose files may still name the entity."""

    partition_name: str
    location: str
    why: str


class Result(NamedTuple):
    """What a run came to."""

    erasure_id: int
    is_resumed: bool
    is_finished: bool
    erased: Erased
    """By all runs of the erasure."""
    left: Sequence[Left]
    texts: int
    """Reasons and notes with the entity's id in them, which stay."""
    lake: str | None
    """Where the log's table in a lake is that was not reached, and still has the entity as far as is known."""


class Found(NamedTuple):
    """Where an entity is."""

    rows: EntityRows
    archived_rows: int
    files: int
    left: Sequence[Left]
    """Months that could not be looked into."""
    lake: str | None
    """Where the log's table in a lake is, which was not looked into because no lake was named."""
    lake_rows: int = 0
    lake_files: int = 0


class EntityEraser:
    """Erases by short transactions; what was done stays done, and the next run goes on.

    The order is what keeps the promise: first the digest by which late rows are known is committed, then transactions
    that may not have seen it are waited for, and only then rows are looked for. A file is named before it is written,
    read back before readers go to it, and what it replaces is deleted after, once the bytes in its place are seen to
    be those of the ledger: who may erase can write the ledger, and so make a file look replaced that is not.

    Args:
        ledger: Erasures, and what the archive consists of.
        files: Writes Parquet; ``None`` where the extra ``archive`` is not installed.
        stores: The archives that may be changed, by location.
        lake: Erases from the log's table in a lake; ``None`` where no lake was named.
        folder: On local disk, of this run alone; holds three files of at most a million rows at a time.
        on_progress: Told after each table and file.
    """

    def __init__(
        self,
        ledger: ErasureLedger,
        files: FileEraser | None,
        stores: Mapping[str, ArchiveStore],
        lake: LakeEraser | None,
        *,
        folder: Path,
        on_progress: Tell,
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._stores = stores
        self._lake = lake
        self._folder = folder
        self._tell = on_progress

    async def find(self, model_name: str | None, entity_id: str) -> Found:
        """Return where an entity is; changes nothing.

        Raises:
            RegistryUnavailable, MigrationNeeded, LoginNotAllowed: The database cannot be asked.
        """
        rows = await self._ledger.entity_rows(model_name, entity_id)
        archived, holding = 0, 0
        left: list[Left] = []
        for archive in await self._ledger.archives():
            try:
                for file in await self._files_of(archive, model_name):
                    found = await self._count(archive, file, entity_id)
                    archived, holding = archived + found, holding + (found > 0)
            except (ArchiveDiffers, ArchiveUnavailable) as problem:
                left.append(Left(archive.partition_name, archive.location, problem.detail))
        lake, seen = await self._ledger.lake(), LakeRows(0, 0)
        if lake is not None and self._lake is not None:
            try:
                lake, seen = None, await self._lake.find(model_name, entity_id)
            except LakeUnavailable as problem:
                left.append(Left(LAKE, self._lake.location, problem.detail))
        return Found(rows, archived, holding, left, lake, *seen)

    async def run(
        self, model_name: str | None, entity_id: str, reason: str | None, *, is_lake_erased: bool = False
    ) -> Result:
        """Erase an entity of one model, or of all.

        Where a lake was not named, its table is not reached: the caller says whether an engine has deleted its rows,
        which is kept.

        Returns:
            ``is_finished`` is false while a month is left: the erasure stays open, and another run goes on with it.

        Raises:
            ArchiveBusy: The archive job or another erasure runs, or a session keeps a lock.
            PolicyRefused: There is no such model, or the entity id is no id.
            RegistryUnavailable, MigrationNeeded, LoginNotAllowed: The database cannot be asked.
        """
        lake = await self._ledger.lake()
        is_reached = lake is not None and self._lake is not None
        via = _via(lake, is_reached=is_reached, is_lake_erased=is_lake_erased)
        erasure = await self._ledger.begin(model_name, entity_id, reason, via)
        await self._ledger.wait_for_writers()
        async with self._ledger.alone():
            await self._erase_rows(erasure)
            left = await self._erase_archives(erasure)
            if is_reached and self._lake is not None:
                left += [Left(LAKE, self._lake.location, why) for why in await self._lake.erase(erasure)]
            # Once more, for what a session brought in that works on an old snapshot: its trigger saw no digest.
            await self._erase_rows(erasure)
            texts = await self._ledger.texts(erasure)
            if not left:
                await self._ledger.end(erasure)
        erased = await self._ledger.erased(erasure)
        lake = None if is_lake_erased or is_reached else lake
        return Result(erasure.id, erasure.is_resumed, not left, erased, left, texts, lake)

    async def _erase_rows(self, erasure: Erasure) -> None:
        await self._ledger.erase_beside_log(erasure)
        tables = await self._ledger.tables()
        for number, table in enumerate(tables, start=1):
            await self._ledger.erase_table(erasure, table)
            self._tell(table, number, len(tables))

    # -- archive -------------------------------------------------------------------------------------------------------

    async def _erase_archives(self, erasure: Erasure) -> list[Left]:
        left: list[Left] = []
        for archive in await self._ledger.archives():
            try:
                if archive.state in _IN_FILES:
                    problems = await self._erase_files(erasure, archive)
                else:
                    problems = await self._write_anew(erasure, archive)
            except (ArchiveDiffers, ArchiveUnavailable) as problem:
                problems = [problem.detail]
            left += [Left(archive.partition_name, archive.location, problem) for problem in problems]
        return left

    async def _write_anew(self, erasure: Erasure, archive: Archive) -> list[str]:
        """Delete the objects of a month that is on its way: its rows are in a table, and will be written again."""
        names = [name.key for name in await self._ledger.names(archive)]
        replaced = await self._replaced(erasure, archive)
        if names or replaced:
            store = self._store_of(archive)
            await store.delete([*names, *(key for one in replaced for key in (one.old_key, one.new_key))])
        await self._ledger.begin_archive_anew(erasure, archive)
        await self._ledger.end_files(erasure, archive)
        return []

    async def _erase_files(self, erasure: Erasure, archive: Archive) -> list[str]:
        """Replace the files of a month that name the entity; return which could not be."""
        problems: list[str] = []
        read_back: dict[str, str] = {}
        files = await self._files_of(archive, erasure.model_name)
        for number, file in enumerate(files, start=1):
            try:
                read_back |= await self._erase_file(erasure, archive, file)
            except ArchiveDiffers as problem:
                problems.append(problem.detail)
            self._tell(f"{archive.partition_name}: files", number, len(files))
        replaced = await self._replaced(erasure, archive)
        if replaced:
            known = await self._ledger.files(archive)
            await self._require_successors(archive, replaced, known, read_back)
            store = self._store_of(archive)
            now = await self._ledger.current(archive)
            await store_manifest(store, self._folder, now, now.fingerprint or Fingerprint(), known)
            keys = {key for one in replaced for key in (one.old_key, one.new_key)}
            await store.delete(sorted(keys - {file.key for file in known}))
            await self._ledger.end_files(erasure, archive)
        return problems

    async def _replaced(self, erasure: Erasure, archive: Archive) -> Sequence[Replacement]:
        """Return what is being replaced; the release before could name any file in another's place."""
        replaced = await self._ledger.replacements(erasure, archive)
        for one in replaced:
            if one.new_key != replacing_key(one.old_key, erasure.id):
                raise ArchiveDiffers(f"{one.new_key[:MAX_QUOTED_KEY]!r} is not what takes the place of {one.old_key}")
        return replaced

    async def _require_successors(
        self,
        archive: Archive,
        replaced: Sequence[Replacement],
        known: Sequence[ArchivedFile],
        read_back: Mapping[str, str],
    ) -> None:
        """See that for each file that is about to be deleted there is one in its place, with the ledger's bytes."""
        keys = {file.key for file in known}
        in_place = {first_key(file.key): file for file in known}
        for old in [one.old_key for one in replaced if one.old_key not in keys]:
            file = in_place.get(first_key(old))
            if file is None:
                raise ArchiveDiffers(f"no file has the place of {old}, which stays")
            if read_back.get(file.key) != file.sha256 and not await self._is_as_told(archive, file):
                raise ArchiveDiffers(f"{file.key} is not there as the ledger has it, so {old} stays")

    async def _erase_file(self, erasure: Erasure, archive: Archive, file: ArchivedFile) -> dict[str, str]:
        """Replace a file, if it names the entity; return the digest of what was written and read back, by its key."""
        path = await self._fetched(archive, file.key)
        written = await asyncio.to_thread(
            self._eraser.rewrite, path, self._folder / "written.parquet", erasure, file.model_name
        )
        path.unlink()
        if written is None:
            return {}
        if written.was_sha256 != file.sha256:
            raise ArchiveDiffers(f"{file.key} is not what was written, and names the entity")
        replacement = Replacement(archive.id, file.key, replacing_key(file.key, erasure.id))
        await self._ledger.name_file(erasure, replacement)
        await self._store_of(archive).put(replacement.new_key, written.path)
        await self._require_as_written(archive, replacement.new_key, written.sha256)
        await self._ledger.erase_told(erasure, file.model_name, written.prediction_ids)
        await self._ledger.swap_file(erasure, replacement, written)
        written.path.unlink()
        return {replacement.new_key: written.sha256}

    async def _require_as_written(self, archive: Archive, key: str, sha256: str) -> None:
        if not await self._has_digest(archive, key, sha256):
            raise ArchiveDiffers(f"{key} is not what was written a moment ago")

    async def _is_as_told(self, archive: Archive, file: ArchivedFile) -> bool:
        try:
            return await self._has_digest(archive, file.key, file.sha256)
        except ArchiveDiffers:
            return False

    async def _has_digest(self, archive: Archive, key: str, sha256: str) -> bool:
        path = await self._fetched(archive, key)
        read = await asyncio.to_thread(self._eraser.digest, path)
        path.unlink()
        return read == sha256

    async def _count(self, archive: Archive, file: ArchivedFile, entity_id: str) -> int:
        path = await self._fetched(archive, file.key)
        found = await asyncio.to_thread(self._eraser.count, path, entity_id)
        path.unlink()
        return found

    async def _files_of(self, archive: Archive, model_name: str | None) -> Sequence[ArchivedFile]:
        return [file for file in await self._ledger.files(archive) if model_name in (None, file.model_name)]

    async def _fetched(self, archive: Archive, key: str) -> Path:
        path = self._folder / "fetched.parquet"
        if not await self._store_of(archive).fetch(key, path):
            raise ArchiveDiffers(f"{key} is not there")
        return path

    def _store_of(self, archive: Archive) -> ArchiveStore:
        store = self._stores.get(archive.location)
        if store is None:
            raise ArchiveUnavailable(f"was not named (--archive {quote(archive.location)})")
        return store

    @property
    def _eraser(self) -> FileEraser:
        if self._files is None:
            raise ArchiveUnavailable(f"what reads Parquet is not installed: pip install '{DISTRIBUTION}[archive]'")
        return self._files


def _via(lake: str | None, *, is_reached: bool, is_lake_erased: bool) -> str:
    if lake is None:
        return "cli"
    if is_reached:
        return "cli; the lake as well"
    return "cli; the lake's rows were said to be deleted" if is_lake_erased else "cli; not the lake's rows"
