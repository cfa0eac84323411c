"""Erases one entity from the lake's table: files that name it are written anew, and the old ones deleted.

First comes what is on its way: files that proxies named before the erasure was known come into the table, and the
monitor merges no more. What proxies name later has lost the entity's name already. Then every file is read; a file that
is replaced is written down before, so that a run that was stopped leaves none behind. That ends with a look at which no
file is merged and none is new. At the end no snapshot with the old files is kept, and they are deleted, as are all
others that were replaced and not deleted yet.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from understudy.core.prediction_log.lake_rewrites import TableFile, rewritten_key
from understudy.errors import ArchiveUnavailable, LakeUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.entity_erasure import Erasure, ErasureLedger
from understudy.ports.prediction_log.lake_erasure import LakeErasureLedger, UnfinishedFile
from understudy.ports.prediction_log.lake_rewrites import RewritableTable, TableLook

PATIENCE_SECONDS = 150.0
"""How long files that are on their way are waited for: the monitor commits each half minute."""
PAUSE_SECONDS = 0.5
IN_FLIGHT_SECONDS = 600.0
"""A file that was named so long ago and is not stored is not being stored any more: see ``LakeShipper``."""
HOLD_SECONDS = 600.0
"""After how long the monitor is told anew to merge nothing; it believes it for an hour."""
BATCH_BYTES = 128 * 1_048_576
BATCH_FILES = 50
MAX_PASSES = 20
"""Over the table's files; each but the first reads those alone that came meanwhile."""
_MONITOR = "a monitor with UNDERSTUDY_LOG has to lead; then run the command again"


class LakeRows(NamedTuple):
    """Where an entity is in the lake."""

    rows: int
    files: int


class LakeEraser:
    """Erases from the table, for an erasure that the ledger has begun.

    Args:
        erasures: The ledger of erasures.
        ledger: What it knows of the lake.
        table: The table.
        store: Where its files are.
        folder: On local disk, of this run alone; holds up to 128 MiB of files.
        on_progress: Told after each file.
        patience_seconds: See :data:`PATIENCE_SECONDS`.
    """

    def __init__(
        self,
        erasures: ErasureLedger,
        ledger: LakeErasureLedger,
        table: RewritableTable,
        store: ArchiveStore,
        *,
        folder: Path,
        on_progress: Callable[[str, int, int], None],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._erasures = erasures
        self._ledger = ledger
        self._table = table
        self._store = store
        self._folder = folder
        self._tell = on_progress
        self._patience_seconds = patience_seconds
        self._clean: set[str] = set()
        """Files that were read and do not name the entity."""
        self._held: tuple[int, float] | None = None
        """What keeps the monitor from merging, and since when."""

    @property
    def location(self) -> str:
        """The lake's place."""
        return self._store.location

    async def find(self, model_name: str | None, entity_id: str) -> LakeRows:
        """Return where an entity is in the table; changes nothing.

        Raises:
            LakeUnavailable: The table cannot be read.
        """
        look = await asyncio.to_thread(self._table.look, None, None, model_name)
        rows = files = 0
        for number, file in enumerate(look.files, start=1):
            found = await asyncio.to_thread(look.count_entity, file, entity_id)
            rows, files = rows + found, files + (found > 0)
            self._tell("the lake's files", number, len(look.files))
        return LakeRows(rows, files)

    async def erase(self, erasure: Erasure) -> list[str]:
        """Erase, and return why the lake may still name the entity; nothing when it does not.

        Raises:
            RegistryUnavailable, ArchiveBusy, PolicyRefused: As the ledger.
        """
        try:
            for one in await self._ledger.open_rewrites(erasure):
                await self._end_stopped(erasure, one.number, one.old_paths, one.new_keys)
            await self._hold(erasure)
            left = await self._wait_for_files(erasure)
            left += await self._erase_files(erasure)
            left += await self._delete_replaced()
        except (LakeUnavailable, ArchiveUnavailable) as problem:
            return [problem.detail]
        finally:
            await self._release(erasure)
        return left

    async def _hold(self, erasure: Erasure) -> None:
        """Keep the monitor from merging, for an hour from now on."""
        before = self._held
        self._held = (await self._ledger.begin(erasure, ()), time.monotonic())
        if before is not None:
            await self._ledger.end(erasure, before[0], 0, is_in_table=False)

    async def _hold_on(self, erasure: Erasure) -> None:
        if self._held is None or time.monotonic() - self._held[1] > HOLD_SECONDS:
            await self._hold(erasure)

    async def _release(self, erasure: Erasure) -> None:
        held, self._held = self._held, None
        if held is not None:
            await self._ledger.end(erasure, held[0], 0, is_in_table=False)

    async def _end_stopped(
        self, erasure: Erasure, number: int, old_paths: Sequence[str], new_keys: Sequence[str]
    ) -> None:
        """End what an earlier run was stopped at: the table says whether it has it, and takes it no more."""
        await asyncio.to_thread(self._table.give_up, number)
        new = [self._table.path_of(key) for key in new_keys]
        live, state = await asyncio.to_thread(self._table.live_among, [*old_paths, *new])
        is_in_table = bool(new) and live.isdisjoint(old_paths)
        await self._ledger.end(erasure, number, state, is_in_table=is_in_table)

    async def _wait_for_files(self, erasure: Erasure) -> list[str]:
        """Wait until what was on its way is in the table, and return what is not; nothing of it may be left unread."""
        since = await self._ledger.moment()
        deadline = time.monotonic() + self._patience_seconds
        known: list[str] = []
        while True:
            unfinished = await self._ledger.unfinished(since, known)
            known = [one.key for one in unfinished]
            waiting = [one for one in unfinished if _is_waited_for(one)]
            if not waiting or time.monotonic() >= deadline:
                break
            self._tell("files on their way", len(unfinished) - len(waiting), len(unfinished))
            await asyncio.sleep(PAUSE_SECONDS)
        abandoned = [one for one in unfinished if one not in waiting and not one.is_stored]
        await self._delete_abandoned(erasure, abandoned)
        return [f"{len(waiting)} files of proxies are not in the table yet: {_MONITOR}"] if waiting else []

    async def _wait_for_merges(self) -> bool:
        """Return whether no file is being merged, after some time."""
        deadline = time.monotonic() + self._patience_seconds
        while await self._ledger.is_merging():
            if time.monotonic() >= deadline:
                return False
            self._tell("files that the monitor merges", 0, 1)
            await asyncio.sleep(PAUSE_SECONDS)
        return True

    async def _delete_abandoned(self, erasure: Erasure, files: Sequence[UnfinishedFile]) -> None:
        """Delete objects with the entity that no proxy will call stored: one that comes back writes them anew.

        Where there is no object, a store that is a folder may have a part of one, which goes with it.
        """
        for file in files:
            rows = await asyncio.to_thread(self._table.count_in, self._table.path_of(file.key), erasure.entity_id)
            if rows != 0:
                await self._store.delete([file.key])

    async def _erase_files(self, erasure: Erasure) -> list[str]:
        """Erase from the table's files until none is new, and return why there may be new ones.

        Each pass holds the monitor anew: had the hold lapsed, as while a computer sleeps, what was merged meanwhile is
        waited for and read. No merge that begins after the last pass can have the entity's name.
        """
        is_calm = True
        for _ in range(MAX_PASSES):
            await self._hold(erasure)
            is_calm = is_calm and await self._wait_for_merges()
            look = await asyncio.to_thread(self._table.look, None, None, erasure.model_name)
            files = [file for file in look.files if file.path not in self._clean]
            if not files:
                return [] if is_calm else [f"files are being merged: {_MONITOR}"]
            await self._erase_pass(erasure, look, files)
        raise LakeUnavailable("other engines replace the table's files faster than they are read")

    async def _erase_pass(self, erasure: Erasure, look: TableLook, files: Sequence[TableFile]) -> None:
        batch, size = list[TableFile](), 0
        for number, file in enumerate(files, start=1):
            await self._hold_on(erasure)
            if await asyncio.to_thread(look.count_entity, file, erasure.entity_id):
                batch.append(file)
                size += file.byte_count
            else:
                self._clean.add(file.path)
            if size >= BATCH_BYTES or len(batch) == BATCH_FILES:
                await self._rewrite(erasure, look, batch)
                batch, size = [], 0
            self._tell("the lake's files", number, len(files))
        if batch:
            await self._rewrite(erasure, look, batch)

    async def _rewrite(self, erasure: Erasure, look: TableLook, files: Sequence[TableFile]) -> None:
        number = await self._ledger.begin(erasure, [file.path for file in files])
        attempt = uuid4().hex[:12]
        written: dict[str, Path] = {}
        rows = 0
        for place, file in enumerate(files):
            path = self._folder / f"lake-{place}.parquet"
            found, gone = await asyncio.to_thread(look.write_erased, file, path, erasure)
            rows += found
            await self._erasures.erase_told(erasure, file.model, gone)
            written[rewritten_key(file.model, file.hour, number, attempt, place)] = path
        await self._ledger.name(erasure, number, list(written), rows)
        for key, path in written.items():
            await self._store.put(key, path)
            path.unlink()
        state = await asyncio.to_thread(self._table.replace, files, list(written), number)
        if state is None:  # another engine replaced one of them meanwhile; the next pass reads what there is now
            await self._end_stopped(erasure, number, [file.path for file in files], list(written))
            return
        await self._ledger.end(erasure, number, state, is_in_table=True)
        self._clean |= {self._table.path_of(key) for key in written}

    async def _delete_replaced(self) -> list[str]:
        """Expire all snapshots but those that an operator gave a name, and delete every file that was replaced."""
        oldest = await asyncio.to_thread(self._table.forget_before, None)
        ended = await self._ledger.ended_rewrites()
        due = [one for one in ended if one.sequence is not None and one.sequence <= oldest]
        paths = {path for one in due for path in one.old_paths}
        paths |= {self._table.path_of(key) for one in due for key in one.new_keys}
        live, _ = await asyncio.to_thread(self._table.live_among, sorted(paths))
        await self._store.delete(self._table.keys_of(paths - live))
        if len(due) == len(ended):
            return []
        return [
            "a branch or tag of the table keeps a snapshot with replaced files: drop it, then run the command again"
        ]


def _is_waited_for(file: UnfinishedFile) -> bool:
    """Return whether a file may still come into the table with the entity, or leave an object for good."""
    if file.is_stored:
        return not file.has_seen
    return not file.is_left and file.named_seconds < IN_FLIGHT_SECONDS
