"""``ErasureLedger`` in Postgres: the functions of migration 0021, which erase with their owner's rights."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.adapters.postgres.prediction_log.archive_ledger import (
    ALONE_SECONDS,
    ARCHIVE_COLUMNS,
    LOCKED,
    SCAN_SECONDS,
    archive_of,
)
from understudy.core.prediction_log.erasure import EntityRows, Erased
from understudy.errors import ArchiveBusy, PolicyRefused
from understudy.ports.prediction_log.entity_erasure import Erasure, Replacement, RewrittenFile
from understudy.ports.prediction_log.log_archive import Archive, ArchivedFile, FileName

T = TypeVar("T")
PATIENCE_SECONDS = 60.0
"""How long a step waits for other sessions' locks and transactions."""
_PAUSE_SECONDS = 0.2
_PREDICTIONS_AT_ONCE = 10_000
_HINT = "Run understudy entity forget again: it goes on where this run stopped, and late rows come in without the name."
_WHO_HINT = f"The oldest xact_start in pg_stat_activity is its transaction's. {_HINT}"
_TABLES = """
    SELECT relname::text FROM pg_class JOIN pg_inherits ON inhrelid = oid
    WHERE inhparent = 'predictionlog'::regclass AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}$'
    UNION ALL
    SELECT detached_as FROM logarchive JOIN pg_class ON relname = detached_as AND relkind = 'r'
    WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'predictionlog'::regclass)
    ORDER BY 1
"""
_ARCHIVES = f"SELECT {ARCHIVE_COLUMNS} FROM logarchive ORDER BY month_start, id"  # noqa: S608 - constant
_ARCHIVE = f"SELECT {ARCHIVE_COLUMNS} FROM logarchive WHERE id = $1"  # noqa: S608 - constant
_FILES = """
    SELECT key, model_name, day::text AS day, row_count, byte_count, sha256::text AS sha256 FROM logarchivefile
    WHERE archive_id = $1 AND sha256 IS NOT NULL ORDER BY key
"""
_NAMES = "SELECT key, model_name, day::text AS day FROM logarchivefile WHERE archive_id = $1 ORDER BY key"
_REPLACEMENTS = """
    SELECT archive_id, old_key, new_key FROM entityerasurefile
    WHERE erasure_id = $1 AND archive_id = $2 ORDER BY old_key
"""
# Before the first commit there are files alone.
_LAKE = """
    SELECT coalesce((SELECT regexp_replace(metadata_location, '/metadata/[^/]*$', '') FROM iceberg_tables LIMIT 1),
                    (SELECT 'the folder or bucket of UNDERSTUDY_LAKE_URL' FROM lakefile LIMIT 1))
"""
_ERASED = """
    SELECT log_rows, kept_rows, archived_rows, files, outcomes, dead_letters, lake_rows, lake_files FROM entityerasure
    WHERE id = $1
"""


@asynccontextmanager
async def open_erasures(
    database_url: str,
    *,
    timeout_seconds: float,
    patience_seconds: float = PATIENCE_SECONDS,
    alone_seconds: float = ALONE_SECONDS,
) -> AsyncIterator["PostgresErasureLedger"]:
    """Open a connection for erasures; a second one keeps the archive job out: not through a pooler.

    Args:
        database_url: With the role ``understudy_eraser``, or of the owner of the tables.
        timeout_seconds: Longest time of connecting.
        patience_seconds: How long a step waits for other sessions.
        alone_seconds: How long it waits for the archive job to end.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    open_one = partial(connect, database_url, timeout_seconds=timeout_seconds, application_name="understudy-erasure")
    connection = await open_one()
    try:
        yield PostgresErasureLedger(
            connection, open_one, patience_seconds=patience_seconds, alone_seconds=alone_seconds
        )
    finally:
        connection.terminate()


class PostgresErasureLedger:
    """Works over one connection; another one holds the archive's lock, and where that was lost nothing is written."""

    def __init__(
        self,
        connection: asyncpg.Connection,
        open_another: Callable[[], Awaitable[asyncpg.Connection]],
        *,
        patience_seconds: float,
        alone_seconds: float,
    ) -> None:
        self._connection = connection
        self._open_another = open_another
        self._patience_seconds = patience_seconds
        self._alone_seconds = alone_seconds
        self._lock: asyncpg.Connection | None = None

    async def lake(self) -> str | None:
        place: str | None = await self._value(_LAKE)
        return place

    async def begin(self, model_name: str | None, entity_id: str, reason: str | None, via: str) -> Erasure:
        statement = "SELECT * FROM understudy_begin_erasure($1, $2, $3, $4)"
        (row,) = await self.rows(statement, model_name, entity_id, reason, via)
        return Erasure(row["id"], model_name, entity_id, row["salt"], row["is_resumed"])

    async def wait_for_writers(self) -> None:
        before = set(await self._value("SELECT understudy_writers_of_rows()"))
        deadline = self._deadline()
        while before:
            if asyncio.get_running_loop().time() >= deadline:
                raise ArchiveBusy(
                    "a session that writes rows of the log, of outcomes or dead letters keeps its transaction open",
                    hint=_WHO_HINT,
                )
            await asyncio.sleep(_PAUSE_SECONDS)
            before &= set(await self._value("SELECT understudy_writers_of_rows()"))

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        lock = await self._open_another()
        try:
            async with translated("the archive's lock cannot be taken"):
                # Shippers do not need the table, and vacuum does not wait for a transaction without a snapshot.
                await lock.execute(
                    "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; "
                    f"SET LOCAL lock_timeout = {self._alone_seconds * 1_000:.0f}"
                )
                try:
                    await lock.execute("SELECT understudy_lock_archive()", timeout=ALONE_SECONDS + self._alone_seconds)
                except LOCKED:
                    raise ArchiveBusy("understudy db archive or another erasure is under way", hint=_HINT) from None
            self._lock = lock
            yield
        finally:
            self._lock = None
            # The server releases the lock when it sees the connection end.
            lock.terminate()

    async def tables(self) -> Sequence[str]:
        return [row[0] for row in await self.rows(_TABLES)]

    async def erase_table(self, erasure: Erasure, table: str) -> int:
        erased: int = await self.step("SELECT understudy_erase_month($1, $2, $3)", erasure, table)
        return erased

    async def erase_beside_log(self, erasure: Erasure) -> None:
        await self.step("SELECT understudy_erase_beside_log($1, $2)", erasure)

    async def archives(self) -> Sequence[Archive]:
        return [archive_of(row) for row in await self.rows(_ARCHIVES)]

    async def current(self, archive: Archive) -> Archive:
        return archive_of((await self.rows(_ARCHIVE, archive.id))[0])

    async def files(self, archive: Archive) -> Sequence[ArchivedFile]:
        return [ArchivedFile(*row) for row in await self.rows(_FILES, archive.id)]

    async def names(self, archive: Archive) -> Sequence[FileName]:
        return [FileName(*row) for row in await self.rows(_NAMES, archive.id)]

    async def begin_archive_anew(self, erasure: Erasure, archive: Archive) -> None:
        await self.step("SELECT understudy_begin_archive_anew($1, $2, $3)", erasure, archive.id)

    async def replacements(self, erasure: Erasure, archive: Archive) -> Sequence[Replacement]:
        return [Replacement(*row) for row in await self.rows(_REPLACEMENTS, erasure.id, archive.id)]

    async def name_file(self, erasure: Erasure, replacement: Replacement) -> None:
        await self.step("SELECT understudy_name_erased_file($1, $2, $3, $4, $5)", erasure, *replacement)

    async def erase_told(self, erasure: Erasure, model_name: str, prediction_ids: Sequence[str]) -> None:
        for first in range(0, len(prediction_ids), _PREDICTIONS_AT_ONCE):
            some = list(prediction_ids[first : first + _PREDICTIONS_AT_ONCE])
            await self.step("SELECT understudy_erase_told($1, $2, $3, $4)", erasure, model_name, some)

    async def swap_file(self, erasure: Erasure, replacement: Replacement, written: RewrittenFile) -> None:
        await self.step(
            "SELECT understudy_swap_erased_file($1, $2, $3, $4, $5, $6, $7, $8)",
            erasure,
            replacement.archive_id,
            replacement.old_key,
            written.rows,
            written.longer_bytes,
            written.size_bytes,
            written.sha256,
        )

    async def end_files(self, erasure: Erasure, archive: Archive) -> None:
        await self.step("SELECT understudy_end_erased_files($1, $2, $3)", erasure, archive.id)

    async def entity_rows(self, model_name: str | None, entity_id: str) -> EntityRows:
        months, kept = 0, 0
        for table in await self.tables():
            rows: int = await self._value("SELECT understudy_count_entity($1, $2, $3)", model_name, entity_id, table)
            months, kept = (months, kept + rows) if "_archived_" in table else (months + rows, kept)
        (beside,) = await self.rows("SELECT * FROM understudy_count_beside_log($1, $2)", model_name, entity_id)
        return EntityRows(months, kept, beside["outcomes"], beside["dead_letters"])

    async def texts(self, erasure: Erasure) -> int:
        texts: int = await self._value("SELECT understudy_count_texts($1, $2)", erasure.id, erasure.entity_id)
        return texts

    async def end(self, erasure: Erasure) -> None:
        await self.step("SELECT understudy_end_erasure($1, $2)", erasure)

    async def erased(self, erasure: Erasure) -> Erased:
        return Erased(*(await self.rows(_ERASED, erasure.id))[0])

    # -- statements ----------------------------------------------------------------------------------------------------

    async def step(self, statement: str, erasure: Erasure, *arguments: object) -> Any:
        """Call a function that changes something; once more while another session holds a lock that it needs."""
        deadline = self._deadline()
        while True:
            try:
                return await self._value(statement, erasure.id, erasure.entity_id, *arguments)
            except ArchiveBusy:
                if asyncio.get_running_loop().time() >= deadline or self._is_overtaken():
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def rows(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Ask a constant statement."""
        return await self._asking(lambda: self._connection.fetch(statement, *arguments, timeout=SCAN_SECONDS))

    async def _value(self, statement: str, *arguments: object) -> Any:
        return await self._asking(lambda: self._connection.fetchval(statement, *arguments, timeout=SCAN_SECONDS))

    async def _asking(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._is_overtaken():
            raise ArchiveBusy("the connection that keeps understudy db archive out was lost", hint=_HINT)
        async with translated("the entity cannot be erased"):
            try:
                return await ask()
            except LOCKED:
                raise ArchiveBusy("another session holds rows that have to be erased", hint=_HINT) from None
            except asyncpg.CheckViolationError as problem:
                raise PolicyRefused(problem.message or "refused", hint=problem.hint) from None
            except asyncpg.UndefinedFunctionError as problem:
                raise asyncpg.UndefinedTableError(str(problem)) from None  # the schema is too old

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._patience_seconds

    def _is_overtaken(self) -> bool:
        return self._lock is not None and self._lock.is_closed()
