"""Keeps the lake's table in shape: merges small files, drops rows that are too old, deletes what was replaced.

A rewrite is written down before its first file is, and until the last one that it replaced is deleted. So whatever
dies in between, the files that may lie in the store are known by name, and the table says which of them it consists
of. What it does not consist of, and no snapshot that is kept does, is deleted. What was stopped is given up in the
table before that, so that a thread that is still at work on it changes nothing later.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import structlog

from understudy.core.prediction_log.lake_rewrites import TableFile, crowded, rewritten_key
from understudy.errors import ArchiveUnavailable, LakeUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.lake_rewrites import LakeRewrites, RewritableTable, TableLook
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

BUDGET_SECONDS = 15.0
"""Of one run: no merge begins after that. New files wait for their commit meanwhile."""
REWRITE_SECONDS = 300.0
"""A merge that took longer is not committed: what it was made of is too old."""
OVER_SECONDS = 900.0
"""After how long no more rows of an hour are waited for."""
SNAPSHOT_SECONDS = 86_400.0
"""How long replaced files stay, for readers and engines that have an older snapshot."""
SKIP_SECONDS = 3_600.0
"""How long an hour whose files could not be merged is left alone, and holds up no other one."""
REAP_SECONDS = 3_600.0
"""Time between two deletions, each of which reads all of the table's manifests."""
MAX_REAPED = 500
MAX_AGED_FILES = 500


class LakeUpkeep:
    """Called by the job that commits, after its commits.

    Args:
        rewrites: What Postgres knows of them.
        table: The table.
        store: Where files are.
        open_folder: Opens a folder on local disk, for one file of a merge.
        telemetry: Gets merges, and the files and rows of what was replaced.
        days: After how many days rows are dropped; ``None``: never.
        now: The monotonic clock, in seconds.
        over_seconds: See :data:`OVER_SECONDS`.
        snapshot_seconds: See :data:`SNAPSHOT_SECONDS`.
    """

    def __init__(
        self,
        rewrites: LakeRewrites,
        table: RewritableTable,
        store: ArchiveStore,
        open_folder: Callable[[], AbstractContextManager[Path]],
        telemetry: Telemetry,
        *,
        days: int | None,
        now: Callable[[], float],
        over_seconds: float = OVER_SECONDS,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
    ) -> None:
        self._rewrites = rewrites
        self._table = table
        self._store = store
        self._open_folder = open_folder
        self._telemetry = telemetry
        self._days = days
        self._now = now
        self._over_seconds = over_seconds
        self._snapshot_seconds = snapshot_seconds
        self._reaped_at: float | None = None
        self._skipped: dict[str, float] = {}
        """Hours that could not be merged, and until when they are left alone."""

    async def run(self, epoch: Epoch) -> None:
        """Go on with what was stopped, then merge within a bound of time, and once an hour drop and delete.

        Files that cannot be merged hold up neither the merges of other hours nor what is to be deleted.

        Raises:
            LakeUnavailable, ArchiveUnavailable, RegistryUnavailable, LeadershipLost: The next run goes on.
        """
        began = self._now()
        await self._end_stopped(epoch)
        failed: LakeUnavailable | ArchiveUnavailable | None = None
        try:
            while self._now() - began < BUDGET_SECONDS and await self._merge(epoch):
                pass
        except (LakeUnavailable, ArchiveUnavailable) as problem:
            failed = problem
        if self._reaped_at is None or self._now() - self._reaped_at >= REAP_SECONDS:
            await self._drop_old(epoch)
            await self._reap(epoch)
            self._reaped_at = self._now()
        if failed is not None:
            raise failed

    async def _end_stopped(self, epoch: Epoch) -> None:
        """End rewrites of a process that was stopped: the table says whether it has them.

        Files that the table still consists of are forgotten, and the others deleted later. A thread of that process
        that would commit after this is refused by the table.
        """
        stopped = await self._rewrites.open_rewrites()
        if stopped:
            await asyncio.to_thread(self._table.give_up, max(one.number for one in stopped))
        for one in stopped:
            new = {self._table.path_of(key): key for key in one.new_keys}
            live, state = await asyncio.to_thread(self._table.live_among, [*one.old_paths, *new])
            is_in_table = live.isdisjoint(one.old_paths)
            old = one.old_paths if is_in_table else ()
            await self._rewrites.end(
                one.number, state, old, [key for path, key in new.items() if path not in live], (), epoch=epoch
            )

    async def _merge(self, epoch: Epoch) -> bool:
        """Merge files of one model and hour; return whether there may be more to do."""
        now = self._now()
        self._skipped = {hour: until for hour, until in self._skipped.items() if until > now}
        hour = await self._rewrites.crowded_hour(self._over_seconds, sorted(self._skipped))
        if hour is None:
            return False
        try:
            return await self._merge_hour(hour, epoch)
        except (LakeUnavailable, ArchiveUnavailable):
            self._skipped[hour] = self._now() + SKIP_SECONDS
            raise

    async def _merge_hour(self, hour: str, epoch: Epoch) -> bool:
        look = await asyncio.to_thread(self._table.look, hour, hour)
        files = crowded(look.files)
        if not files:
            await self._rewrites.leave_hour(hour, epoch=epoch)
            return True
        began = self._now()
        number = await self._rewrites.begin("merge", [file.path for file in files], epoch=epoch)
        if number is None:
            return False
        key = rewritten_key(files[0].model, hour, number, uuid4().hex[:12], 0)
        await self._rewrites.name(number, [key], epoch=epoch)
        rows = await self._write(look, files, key)
        if self._now() - began > REWRITE_SECONDS:
            raise LakeUnavailable(f"{len(files)} files were not merged within {REWRITE_SECONDS:g} s")
        state = await asyncio.to_thread(self._table.replace, files, [key], number)
        if state is None:  # another engine was faster; the next run looks again
            await self._end_stopped(epoch)
            return True
        paths, root = [file.path for file in files], self._table.path_of("")
        await self._rewrites.end(number, state, paths, (), [path.removeprefix(root) for path in paths], epoch=epoch)
        self._telemetry.count("lake_files_merged_total", by=len(files))
        _log.info("lake.merged", hour=hour, files=len(files), rows=rows)
        return True

    async def _write(self, look: TableLook, files: Sequence[TableFile], key: str) -> int:
        expected = sum(file.row_count for file in files)
        with self._open_folder() as folder:
            target = folder / "merged.parquet"
            rows = await asyncio.to_thread(look.write_together, files, target)
            if rows != expected:
                raise LakeUnavailable(f"{len(files)} files have {rows} rows, and {expected} by the table")
            await self._store.put(key, target)
        return rows

    async def _drop_old(self, epoch: Epoch) -> None:
        """Drop files whose hour is so many days ago, whole days in UTC; no row of a file is read."""
        if self._days is None:
            return
        today = datetime.fromtimestamp(await self._rewrites.moment(), UTC).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        last = (today - timedelta(days=self._days, hours=1)).strftime("%Y-%m-%d-%H")
        while True:
            look = await asyncio.to_thread(self._table.look, None, last)
            files = look.files[:MAX_AGED_FILES]
            if not files:
                return
            paths = [file.path for file in files]
            number = await self._rewrites.begin("age", paths, epoch=epoch)
            if number is None:
                return
            state = await asyncio.to_thread(self._table.replace, files, [], number)
            if state is None:
                await self._end_stopped(epoch)
                return
            await self._rewrites.end(number, state, paths, (), (), epoch=epoch)
            rows = sum(file.row_count for file in files)
            self._telemetry.count("lake_rows_dropped_total", by=rows)
            _log.info("lake.dropped", until=last, files=len(files), rows=rows)

    async def _reap(self, epoch: Epoch) -> None:
        """Delete files that no snapshot has any more, of rewrites that ended long enough ago."""
        while True:
            ended = await self._rewrites.ended_rewrites(self._snapshot_seconds, MAX_REAPED)
            if not ended:
                return
            moment = await self._rewrites.moment() - self._snapshot_seconds
            oldest = await asyncio.to_thread(self._table.forget_before, moment)
            due = [one for one in ended if one.sequence is not None and one.sequence <= oldest]
            if not due:
                return
            paths = {path for one in due for path in one.old_paths}
            paths |= {self._table.path_of(key) for one in due for key in one.new_keys}
            live, _ = await asyncio.to_thread(self._table.live_among, sorted(paths))
            await self._store.delete(self._table.keys_of(paths - live))
            await self._rewrites.forget_rewrites([one.number for one in due], epoch=epoch)
            _log.info("lake.deleted", files=len(paths - live))
