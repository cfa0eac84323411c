"""Ships rows from the write-ahead spool into ``PredictionLog``, exactly once.

The order is: insert, commit together with the offset, then forget. When a process dies between two of these steps, the
offset in the database is where the next shipper goes on; the same offset keeps two shippers of one spool apart. The
windows that the monitor judges by are sums over the same rows and go with them in the same transaction.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from uuid import uuid4

import structlog

from understudy.background.outage_log import OutageLog
from understudy.core.prediction_log.copy_lines import texts_of
from understudy.core.windows.builder import SlowThreshold, Staged, WindowBuilder
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.prediction_log.prediction_log import (
    PredictionStore,
    SpooledBatch,
    SpoolReader,
    SpoolShelf,
    WriteOutcome,
)
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

MAX_BACK_OFF_SECONDS = 1.0
SIGN_SECONDS = 86_400.0
_BATCH_BYTES = 2 * 1_048_576
_CLEARLY_LESS = 0.9
_TURN_BATCHES = 50
"""Batches of one spool before another one has its turn."""
_NOT_NOW = (RegistryUnavailable, MigrationNeeded, OSError)
"""Nothing is wrong with the rows: they stay on disk, and the next tick tries again."""


class LogShipper:
    """Ships a worker's own spool and those of dead workers.

    Args:
        shelf: Where the spools are.
        store: Where the rows go.
        make_windows: Makes what adds the rows up, under a name that was never used.
        slow_us_of: A rollout's threshold of a slow call, in microseconds.
        telemetry: Gets rows written and rejected, how long that took, bytes waiting, and the age of the oldest waiting
            row.
        batch_rows: Rows of one transaction; those that were written together with the last one come too.
        interval_seconds: Pause after what waited was shipped: rows gather meanwhile, and leave together.
        orphan_seconds: Pause between two searches for spools of dead workers.
        sign_seconds: How often the own spool's place is read again although it is known: reading it keeps it, and
            places of spools that no worker reads are deleted.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        shelf: SpoolShelf,
        store: PredictionStore,
        make_windows: Callable[[], WindowBuilder],
        slow_us_of: SlowThreshold,
        telemetry: Telemetry,
        *,
        batch_rows: int,
        interval_seconds: float,
        orphan_seconds: float = 5.0,
        sign_seconds: float = SIGN_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._shelf = shelf
        self._store = store
        self._make_windows = make_windows
        self._windows = make_windows()
        self._slow_us_of = slow_us_of
        self._telemetry = telemetry
        self._batch_rows = batch_rows
        self._interval_seconds = interval_seconds
        self._orphan_seconds = orphan_seconds
        self._sign_seconds = sign_seconds
        self._now = now
        self._own_id = ""
        self._own_place: tuple[int, int] | None = None
        """Committed place of the own spool while it is known for certain."""

    async def run(self) -> None:
        """Ship until cancelled; while the database is away, wait longer and longer, at most a second."""
        pause = self._interval_seconds
        next_look = 0.0
        next_sign = time.monotonic() + self._sign_seconds
        failing_since: float | None = None
        outage = OutageLog("prediction_log", "rows of the log", self._now)
        while True:
            if time.monotonic() >= next_sign:
                self._own_place = None
                next_sign = time.monotonic() + self._sign_seconds
            try:
                is_behind = await self._ship_own()
                if time.monotonic() >= next_look:
                    await self._ship_orphans()
                    next_look = time.monotonic() + self._orphan_seconds
                pause, failing_since = self._interval_seconds, None
                outage.succeeded()
                if is_behind:
                    continue
            except _NOT_NOW as problem:
                pause = min(MAX_BACK_OFF_SECONDS, pause * 2)
                failing_since = self._now() if failing_since is None else failing_since
                outage.failed(problem, "calls; their rows wait on disk, up to UNDERSTUDY_SPOOL_LIMIT_BYTES")
                self._count_failure(problem, failing_since)
            await asyncio.sleep(pause)

    def _count_failure(self, problem: Exception, since: float) -> None:
        """Count it, and let the oldest row's age go on growing although nothing can be read of it."""
        self._telemetry.count("prediction_log_errors_total", getattr(problem, "code", "disk"))
        if self._shelf.own.unshipped_bytes > 0:
            self._telemetry.set("prediction_log_oldest_seconds", max(0.0, self._now() - since))

    async def drain(self, timeout_seconds: float) -> None:
        """Ship what is left of the own spool, after :meth:`run` was cancelled; the rest stays on disk."""
        with suppress(TimeoutError, *_NOT_NOW):
            async with asyncio.timeout(timeout_seconds):
                while await self._ship_own(to_the_end=True):
                    pass

    async def _ship_own(self, *, to_the_end: bool = False) -> bool:
        """Ship what waits in the own spool, at most a turn's worth; return whether that was not all.

        Rows that were appended during the turn wait for the next one, unless there are enough of them for a full batch.
        """
        # Forgotten on any failure, cancellation included: then only the database knows what was committed.
        own, place, self._own_place = self._shelf.own, self._own_place, None
        if own.spool_id != self._own_id:  # the spool's folder was lost, and another one made
            self._own_id, place = own.spool_id, None
        try:
            self._own_place, is_behind = await self._ship(own, place, to_the_end=to_the_end)
        finally:
            self._telemetry.set("prediction_log_spool_bytes", self._shelf.own.unshipped_bytes)
        return is_behind

    async def _ship_orphans(self) -> None:
        """Ship each orphan; one that cannot be read, or whose columns the database lacks, holds up no other one."""
        unfit: MigrationNeeded | None = None
        with closing(self._shelf.orphans()) as orphans:
            for orphan in orphans:
                try:
                    await self._ship(orphan, None, to_the_end=True)
                except OSError:
                    continue
                except MigrationNeeded as problem:
                    unfit = problem
        if unfit is not None:
            raise unfit

    async def _ship(
        self, spool: SpoolReader, place: tuple[int, int] | None, *, to_the_end: bool
    ) -> tuple[tuple[int, int], bool]:
        """Ship a turn's worth of a spool, from its committed ``place`` if known.

        Returns:
            The new place, and whether the turn was over before the spool was at its end, or (with ``to_the_end`` false)
            before less than a full batch was left.
        """
        if place is None:
            place = await self._committed(spool)
        shipped: SpooledBatch | None = None
        for _ in range(_TURN_BATCHES):
            found = await self._read(spool, place, None if to_the_end else shipped)
            if found is None:
                return place, False
            batch, staged = found
            if shipped is not None and not to_the_end and self._is_last(batch, place, spool.unshipped_bytes):
                return place, False
            is_shipped = await (self._reject_all(batch) if batch.damage else self._write(batch, staged))
            place = (batch.segment, batch.end) if is_shipped else await self._committed(spool)
            shipped = batch
        return place, True

    async def _committed(self, spool: SpoolReader) -> tuple[int, int]:
        """Return the spool's place in the log.

        An offset that no shipper of this spool can have written would have its rows counted as shipped. They are then
        shipped under another spool id, from the place that is known for certain: once in this process; after a restart
        from the first segment that still has rows.
        """
        place, certain = await self._store.committed(spool.spool_id), spool.forgotten
        if not spool.is_beyond(*place):
            if place < certain and certain[1] > 0:
                self._begin_anew(spool.spool_id, certain, place)
            return place
        spool_id = str(uuid4())
        _log.error(
            "prediction_log.offset_beyond_spool", spool_id=spool.spool_id, segment=place[0], byte_offset=place[1],
            now_spool_id=spool_id,
        )  # fmt: skip
        self._telemetry.count("prediction_log_errors_total", "offset")
        if certain > (0, 0):
            await self._store.write(SpooledBatch(spool_id, certain[0], 0, certain[1], ()))
        await asyncio.to_thread(spool.rename, spool_id)
        return certain

    def _begin_anew(self, spool_id: str, had: tuple[int, int], has: tuple[int, int]) -> None:
        """Add up under another name: the database has less of a spool than it had, so it is another one, restored.

        The windows so far hold calls that it lacks, some of them for ever. What it has of them stays under their name.
        """
        _log.warning("prediction_log.restored", spool_id=spool_id, had=had, has=has)
        self._windows = self._make_windows()

    def _is_last(self, batch: SpooledBatch, place: tuple[int, int], unshipped_bytes: int) -> bool:
        """Whether neither this batch nor what follows it is a full one, so that both may wait for more rows."""
        # On a volume with little room segments are short: a batch that begins one is all of it, and others may follow.
        if batch.segment != place[0] or self._is_full(batch):
            return False
        size = batch.end - batch.start
        following = unshipped_bytes - size  # in other segments; a row of theirs is about as long as one of this batch
        return following < _BATCH_BYTES // 2 and following * len(batch.rows) < size * self._batch_rows

    def _is_full(self, batch: SpooledBatch) -> bool:
        # By bytes a batch is full when the next row did not fit. If that leaves more than half of the room, the row is
        # longer than half of it, and then full in the same way once it is alone.
        return len(batch.rows) >= self._batch_rows or batch.end - batch.start >= _BATCH_BYTES // 2

    async def _read(
        self, spool: SpoolReader, place: tuple[int, int], shipped: SpooledBatch | None
    ) -> tuple[SpooledBatch, Staged] | None:
        """Free what lies before a committed place, and return what follows it with what that adds to the windows.

        ``None``: nothing does, or after a batch was ``shipped`` so little that it may wait.
        """
        may_wait = False

        def forget_and_read() -> tuple[SpooledBatch, Staged] | None:
            nonlocal may_wait
            spool.forget(*place)
            may_wait = shipped is not None and _may_wait(spool.unshipped_bytes, shipped)
            if may_wait:
                return None
            batch = spool.read_from(*place, self._batch_rows, _BATCH_BYTES)
            return None if batch is None else (batch, self._stage(batch))

        found = await asyncio.to_thread(forget_and_read)  # one hop, which costs more than the reading
        if spool is self._shelf.own:
            if not may_wait:
                age_seconds = 0.0 if found is None else max(0.0, self._now() - _first_second(found[0]))
                self._telemetry.set("prediction_log_oldest_seconds", age_seconds)
            self._telemetry.set("prediction_log_spool_bytes", spool.unshipped_bytes)
        return found

    def _stage(self, batch: SpooledBatch) -> Staged:
        return self._windows.stage(batch.rows, batch.columns, self._slow_us_of, batch.records)

    async def _write(self, batch: SpooledBatch, staged: Staged) -> bool:
        """Write all rows but the poison ones, which are found by halving; ``False`` when the offset has moved."""
        began_at = time.monotonic()
        try:
            outcome, why = await self._store.write(batch, staged.windows)
        except BaseException:
            # It is not known what was committed: what comes next is added under another name and overwrites nothing.
            self._windows = self._make_windows()
            raise
        if outcome is WriteOutcome.WRITTEN:
            self._windows.commit(staged)
            self._telemetry.observe("prediction_log_ship_duration_seconds", time.monotonic() - began_at)
            self._telemetry.count("prediction_log_rows_total", "written", by=len(batch.rows))
            return True
        if outcome is WriteOutcome.OFFSET_MOVED:
            return False
        if len(batch.rows) == 1:
            return await self._reject(batch, why)
        left, right = halve(batch)
        return await self._write(left, self._stage(left)) and await self._write(right, self._stage(right))

    async def _reject_all(self, damaged: SpooledBatch) -> bool:
        for place in range(len(damaged.rows)):
            if not await self._reject(damaged.part(place, place + 1), damaged.damage):
                return False
        return True

    async def _reject(self, batch: SpooledBatch, why: str) -> bool:
        if await self._store.reject(batch, why) is WriteOutcome.OFFSET_MOVED:
            return False
        self._telemetry.count("prediction_log_rows_total", "rejected")
        return True


def halve(batch: SpooledBatch) -> tuple[SpooledBatch, SpooledBatch]:
    """Return the first and the second half of a batch of at least two rows."""
    middle = len(batch.rows) // 2
    return batch.part(0, middle), batch.part(middle, len(batch.rows))


def _may_wait(unshipped_bytes: int, shipped: SpooledBatch) -> bool:
    """Whether clearly less is left than was shipped, so that it may gather: it is not read and added up for nothing.

    A full batch is about as long as the one before, and so is a segment on a volume with little room.
    """
    return 0 < unshipped_bytes < min(_CLEARLY_LESS * (shipped.end - shipped.start), _BATCH_BYTES // 2)


def _first_second(batch: SpooledBatch) -> float:
    """Return when the first row was predicted, in seconds since the epoch; infinity when it cannot be told."""
    try:
        column, text = batch.columns.index("predicted_at"), texts_of(batch.rows)[0]
        line = text[: text.index(b"\n")]
        return datetime.fromisoformat(line.split(b"\t", column + 1)[column].decode()).timestamp()
    except (ValueError, IndexError):
        return float("inf")
