"""Commits files that proxies stored to the lake's table, each exactly once, and deletes what is left over.

A commit is begun in Postgres, where it takes its files and its number; then the table gets both in one change; then
Postgres is told. Commits follow each other, so whatever dies in between, the next leader finds one open commit, and the
table itself says whether it has it. Two leaders at once cannot both add it: see ``ports.LakeTable``.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from understudy.core.prediction_log.lake import LAYOUT, MAX_BEHIND_SECONDS
from understudy.errors import LakeUnavailable
from understudy.monitoring.lake_upkeep import LakeUpkeep
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.lake import LakeCommits, LakeTable
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

MAX_FILES = 500
"""Of one commit: the foot of each is read."""
KEPT_SECONDS = 86_400.0
"""How long a committed file stays in the list, for people who ask which commit took it."""
_SWEPT = 1_000
_FORGOTTEN = 10_000
STUCK_SECONDS = 600.0
"""After how long a run that goes on counts as failed at each tick."""


class LakeJob:
    """Works beside the other jobs: an object store that hangs delays no rollback.

    Args:
        commits: What Postgres knows of them.
        table: The table.
        store: Where files are.
        upkeep: Merges files and drops old ones, after the commits.
        telemetry: Gets commits, their rows, and what waits.
        now: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        commits: LakeCommits,
        table: LakeTable,
        store: ArchiveStore,
        upkeep: LakeUpkeep,
        telemetry: Telemetry,
        *,
        now: Callable[[], float],
    ) -> None:
        self._commits = commits
        self._table = table
        self._store = store
        self._upkeep = upkeep
        self._telemetry = telemetry
        self._now = now
        self._running: asyncio.Task[None] | None = None
        self._began_at = 0.0

    async def tick(self, epoch: Epoch) -> None:
        """Begin a run unless one goes on, and raise what the last one raised.

        Raises:
            LakeUnavailable, ArchiveUnavailable, RegistryUnavailable, LeadershipLost: The last run did, or hangs.
        """
        last = self._running
        if last is not None and not last.done():
            if self._now() - self._began_at > STUCK_SECONDS:
                raise LakeUnavailable(f"a commit has taken more than {STUCK_SECONDS:g} s")
            return
        self._began_at = self._now()
        self._running = asyncio.create_task(self.run(epoch))
        if last is not None and not last.cancelled():
            last.result()

    async def stop(self) -> None:
        """Break off the run. A commit under way may still come to its end, and is found by the next leader."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await running

    async def run(self, epoch: Epoch) -> None:
        """Commit all that waits, sweep, and keep the table in shape. Raises as :meth:`tick` does."""
        newest = await asyncio.to_thread(self._table.last_commit)
        while True:
            commit = await self._commits.open_commit()
            if commit is None:
                commit = await self._commits.begin(newest, LAYOUT, MAX_FILES, epoch=epoch)
            if commit is None:
                break
            await asyncio.to_thread(self._table.commit, commit)
            await self._commits.end(commit.number, epoch=epoch)
            self._telemetry.count("lake_commits_total")
            self._telemetry.count("lake_rows_committed_total", by=commit.rows)
            newest = max(newest, commit.number)
        await self._sweep(epoch)
        waiting = await self._commits.waiting()
        self._telemetry.set("lake_files_waiting", waiting.files)
        self._telemetry.set("lake_oldest_file_seconds", waiting.oldest_seconds)
        await self._upkeep.run(epoch)

    async def _sweep(self, epoch: Epoch) -> None:
        keys = await self._commits.left_over(MAX_BEHIND_SECONDS, _SWEPT)
        if keys:
            await self._store.delete(keys)
            _log.info("lake.swept", files=len(keys))
        await self._commits.forget(keys, KEPT_SECONDS, _FORGOTTEN, epoch=epoch)
