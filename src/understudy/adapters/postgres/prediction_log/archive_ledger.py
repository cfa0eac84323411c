"""``ArchiveLedger`` in Postgres: ``LogArchive``, and the functions that detach and drop a month (0010, 0017)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import date
from functools import partial
from typing import Any, TypeVar

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.core.prediction_log.archive_plan import ArchiveState, Fingerprint, LogPartition
from understudy.errors import ArchiveBusy, PolicyRefused
from understudy.ports.prediction_log.log_archive import Archive, ArchivedFile, FileName

T = TypeVar("T")
ALONE_SECONDS = 10.0
"""How long a run waits for the lock: Postgres may need some seconds to notice that a killed run is gone."""
LOCK_PATIENCE_SECONDS = 60.0
"""How long a month waits for readers of the log to end."""
SCAN_SECONDS = 600.0
"""Longest time of reading a month's table once, for its fingerprint."""
_PAUSE_SECONDS = 0.5
LOCKED = (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)

# A table's lock and no advisory one, which any login may take and keep. It needs no snapshot and no transaction id, so
# vacuum does not wait for it.
_LOCK = f"""
    SET LOCAL idle_in_transaction_session_timeout = 0;
    SET LOCAL lock_timeout = '{ALONE_SECONDS:.0f}s';
    LOCK TABLE archivestatus IN SHARE UPDATE EXCLUSIVE MODE
"""
# A run of the release before waits for this one. This run does not wait for it: the attempt fences it off.
_TELL_RELEASE_BEFORE = "SELECT pg_try_advisory_lock(hashtextextended('understudy.archive', 0))"
# The bounds as Postgres prints them: FOR VALUES FROM ('2026-08-01 00:00:00+00') TO ('2026-09-01 00:00:00+00').
_PARTITIONS = """
    SELECT name, extract(epoch FROM first)::float8 AS first, extract(epoch FROM beyond)::float8 AS beyond,
           EXISTS (SELECT FROM predictionlog WHERE predicted_at >= first AND predicted_at < beyond) AS has_rows,
           EXISTS (SELECT FROM predictionlog
                   WHERE predicted_at >= first AND predicted_at < beyond AND inputs IS NOT NULL) AS has_inputs
    FROM (SELECT relname::text AS name,
                 substring(pg_get_expr(relpartbound, oid) FROM 'FROM \\(''([^'']+)''\\)')::timestamptz AS first,
                 substring(pg_get_expr(relpartbound, oid) FROM 'TO \\(''([^'']+)''\\)')::timestamptz AS beyond
          FROM pg_class JOIN pg_inherits ON inhrelid = oid
          WHERE inhparent = 'predictionlog'::regclass AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}$') AS months
    ORDER BY first
"""
ARCHIVE_COLUMNS = """
    id, partition_name, extract(epoch FROM month_start)::float8 AS start,
    extract(epoch FROM month_end)::float8 AS "end", location, state, attempt, fingerprint, detached_as
"""
_OPEN = f"SELECT {ARCHIVE_COLUMNS} FROM logarchive WHERE state <> 'archived' ORDER BY month_start, id"  # noqa: S608 - constant
_BEGIN = f"""
    INSERT INTO logarchive (partition_name, month_start, month_end, location)
    VALUES ($1, to_timestamp($2), to_timestamp($3), $4) RETURNING {ARCHIVE_COLUMNS}
"""  # noqa: S608 - constant
_FORGET_FILES = "DELETE FROM logarchivefile WHERE archive_id = $1"
_BEGIN_EXPORT = f"""
    UPDATE logarchive
    SET state = 'exporting', attempt = attempt + 1, row_count = NULL, fingerprint = NULL, changed_at = now()
    WHERE id = $1 AND attempt = $2 AND state <> 'archived' RETURNING {ARCHIVE_COLUMNS}
"""  # noqa: S608 - constant
_END_EXPORT = f"""
    UPDATE logarchive SET state = 'exported', row_count = $3, fingerprint = $4, changed_at = now()
    WHERE id = $1 AND attempt = $2 AND state = 'exporting' RETURNING {ARCHIVE_COLUMNS}
"""  # noqa: S608 - constant
_VERIFIED = f"""
    UPDATE logarchive
    SET state = CASE WHEN detached_as IS NULL THEN 'verified' ELSE 'detached' END, changed_at = now()
    WHERE id = $1 AND attempt = $2 AND state IN ('exported', 'verified', 'detached') RETURNING {ARCHIVE_COLUMNS}
"""  # noqa: S608 - constant
_GET = f"SELECT {ARCHIVE_COLUMNS} FROM logarchive WHERE id = $1 AND attempt = $2"  # noqa: S608 - constant
# Only for the current attempt (fencing): a run that was overtaken must not add files to the next one's.
_NAME_FILE = """
    INSERT INTO logarchivefile (archive_id, key, model_name, day)
    SELECT id, $3::text, $4::text, $5::date FROM logarchive WHERE id = $1 AND attempt = $2 AND state = 'exporting'
"""
_ADD_FILE = """
    UPDATE logarchivefile SET row_count = $4, byte_count = $5, sha256 = $6
    FROM logarchive WHERE logarchive.id = archive_id AND archive_id = $1 AND attempt = $2 AND key = $3
"""
_FILES = """
    SELECT key, model_name, day::text AS day, row_count, byte_count, sha256::text AS sha256 FROM logarchivefile
    WHERE archive_id = $1 AND sha256 IS NOT NULL ORDER BY key
"""
_NAMES = "SELECT key, model_name, day::text AS day FROM logarchivefile WHERE archive_id = $1 ORDER BY key"
_SUCCEEDED = """
    INSERT INTO archivestatus (succeeded_at) VALUES (now())
    ON CONFLICT (is_only) DO UPDATE SET succeeded_at = excluded.succeeded_at
"""


@asynccontextmanager
async def open_ledger(
    database_url: str, *, timeout_seconds: float, lock_patience_seconds: float = LOCK_PATIENCE_SECONDS
) -> AsyncIterator["PostgresArchiveLedger"]:
    """Open a connection for the ledger; a second one holds the lock that keeps other runs out: not through a pooler.

    Args:
        database_url: With the role ``understudy_retention``.
        timeout_seconds: Longest time of connecting, and of each short statement.
        lock_patience_seconds: How long a month waits for readers of the log.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    connection = await connect(
        database_url, timeout_seconds=timeout_seconds, application_name="understudy-archive-ledger"
    )
    try:
        open_another = partial(
            connect, database_url, timeout_seconds=timeout_seconds, application_name="understudy-archive-lock"
        )
        yield PostgresArchiveLedger(connection, open_another, lock_patience_seconds=lock_patience_seconds)
    finally:
        connection.terminate()


class PostgresArchiveLedger:
    """Writes over one connection; another one holds the lock, and where it was lost nothing is written."""

    def __init__(
        self,
        connection: asyncpg.Connection,
        open_another: Callable[[], Awaitable[asyncpg.Connection]],
        *,
        lock_patience_seconds: float,
    ) -> None:
        self._connection = connection
        self._open_another = open_another
        self._lock: asyncpg.Connection | None = None
        self._lock_patience_seconds = lock_patience_seconds

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        lock = await self._open_another()
        try:
            async with translated("the archive's lock cannot be taken"):
                await lock.execute("BEGIN")
                try:
                    await lock.execute(_LOCK, timeout=2 * ALONE_SECONDS)
                except LOCKED:
                    raise ArchiveBusy("another run of understudy db archive is under way in this database") from None
            await self._value(_TELL_RELEASE_BEFORE)
            self._lock = lock
            yield
        finally:
            self._lock = None
            # The server releases the lock when it sees the connection end.
            lock.terminate()

    async def partitions(self) -> Sequence[LogPartition]:
        return [LogPartition(*row) for row in await self._rows(_PARTITIONS)]

    async def open_archives(self) -> Sequence[Archive]:
        return [archive_of(row) for row in await self._rows(_OPEN)]

    async def begin(self, partition: LogPartition, location: str) -> Archive:
        return archive_of((await self._rows(_BEGIN, partition.name, partition.start, partition.end, location))[0])

    async def files(self, archive: Archive) -> Sequence[ArchivedFile]:
        return [ArchivedFile(*row) for row in await self._rows(_FILES, archive.id)]

    async def names(self, archive: Archive) -> Sequence[FileName]:
        return [FileName(*row) for row in await self._rows(_NAMES, archive.id)]

    async def begin_export(self, archive: Archive) -> Archive:

        async def change() -> Archive:
            async with self._connection.transaction():
                begun = await self._changed(_BEGIN_EXPORT, archive)
                await self._connection.execute(_FORGET_FILES, archive.id)
            return begun

        return await self._asking(change)

    async def name_file(self, archive: Archive, name: FileName) -> None:
        await self._write_one(_NAME_FILE, archive, name.key, name.model_name, date.fromisoformat(name.day))

    async def add_file(self, archive: Archive, file: ArchivedFile) -> None:
        await self._write_one(_ADD_FILE, archive, file.key, file.rows, file.size_bytes, file.sha256)

    async def end_export(self, archive: Archive, fingerprint: Fingerprint) -> Archive:
        return await self._asking(lambda: self._changed(_END_EXPORT, archive, fingerprint.rows, fingerprint.text))

    async def verified(self, archive: Archive) -> Archive:
        return await self._asking(lambda: self._changed(_VERIFIED, archive))

    async def count(self, archive: Archive) -> Fingerprint:
        text = await self._value("SELECT understudy_archive_fingerprint($1)", archive.id, seconds=SCAN_SECONDS)
        return Fingerprint.parse(text)

    async def detach(self, archive: Archive) -> Archive | None:
        detached = await self._past_locks("SELECT understudy_detach_archived($1)", archive)
        return await self._asking(lambda: self._changed(_GET, archive)) if detached else None

    async def drop(self, archive: Archive) -> Archive:
        await self._past_locks("SELECT understudy_drop_archived($1)", archive)
        return await self._asking(lambda: self._changed(_GET, archive))

    async def drop_due(self) -> int:
        dropped: int = await self._value("SELECT understudy_drop_due()", seconds=SCAN_SECONDS)
        return dropped

    async def succeeded(self) -> None:
        await self._asking(lambda: self._connection.execute(_SUCCEEDED))

    # -- statements ----------------------------------------------------------------------------------------------------

    async def _past_locks(self, statement: str, archive: Archive) -> Any:
        """Call a function that needs the log's exclusive lock; retry while readers hold it."""
        deadline = asyncio.get_running_loop().time() + self._lock_patience_seconds
        while True:
            try:
                return await self._value(statement, archive.id, seconds=SCAN_SECONDS)
            except ArchiveBusy:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            # Meanwhile the statements that queued behind this one go first.
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _changed(self, statement: str, archive: Archive, *arguments: object) -> Archive:
        row = await self._connection.fetchrow(statement, archive.id, archive.attempt, *arguments)
        if row is None:
            raise _overtaken(archive)
        return archive_of(row)

    async def _write_one(self, statement: str, archive: Archive, *arguments: object) -> None:
        done = await self._asking(lambda: self._connection.execute(statement, archive.id, archive.attempt, *arguments))
        if not done.endswith(" 1"):
            raise _overtaken(archive)

    async def _rows(self, statement: str, *arguments: object) -> Sequence[Any]:
        return await self._asking(lambda: self._connection.fetch(statement, *arguments, timeout=SCAN_SECONDS))

    async def _value(self, statement: str, *arguments: object, seconds: float | None = None) -> Any:
        return await self._asking(lambda: self._connection.fetchval(statement, *arguments, timeout=seconds))

    async def _asking(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._lock is not None and self._lock.is_closed():
            raise ArchiveBusy("the connection that keeps other runs of understudy db archive out was lost")
        async with translated("the archive's state cannot be read or changed"):
            try:
                return await ask()
            except LOCKED:
                raise ArchiveBusy(
                    "another session reads the log in a transaction that stays open, so no month can be detached",
                    hint="SELECT pid, application_name, xact_start FROM pg_stat_activity ORDER BY xact_start names "
                    "it; then run understudy db archive again: it goes on where this run stopped.",
                ) from None
            except asyncpg.CheckViolationError as problem:
                raise PolicyRefused(str(problem), hint=problem.hint) from None
            except asyncpg.UndefinedFunctionError as problem:
                raise asyncpg.UndefinedTableError(str(problem)) from None  # the schema is too old


def archive_of(row: Any) -> Archive:
    """Return a row of ``LogArchive`` with the columns of :data:`ARCHIVE_COLUMNS`."""
    fingerprint = None if row["fingerprint"] is None else Fingerprint.parse(row["fingerprint"])
    return Archive(**{**row, "state": ArchiveState(row["state"]), "fingerprint": fingerprint})


def _overtaken(archive: Archive) -> ArchiveBusy:
    return ArchiveBusy(f"another run has taken {archive.partition_name} over")
