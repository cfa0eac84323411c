"""``LogSnapshot`` in Postgres: one snapshot of the log and of what is archived."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import groupby

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.adapters.postgres.prediction_log.archive_rows import SESSION, PostgresLogRows
from understudy.errors import ArchiveDiffers
from understudy.ports.prediction_log.log_archive import ArchivedFile, FilesOf, WantedRows

_FILES = """
    SELECT location, key, file.model_name, day::text AS day, file.row_count, byte_count, sha256::text AS sha256
    FROM logarchive JOIN logarchivefile AS file ON archive_id = id
    WHERE state IN ('detached', 'archived') AND day BETWEEN $1 AND $2
      AND ($3::text[] IS NULL OR file.model_name = ANY ($3::text[]))
    ORDER BY location, key
"""
_BEING_REWRITTEN = """
    SELECT detached_as FROM logarchive
    WHERE state NOT IN ('detached', 'archived') AND detached_as IS NOT NULL
      AND month_end > to_timestamp($1) AND month_start < to_timestamp($2)
"""


@asynccontextmanager
async def log_snapshot(database_url: str, *, timeout_seconds: float) -> AsyncIterator["PostgresLogSnapshot"]:
    """Open a read-only transaction over one database snapshot.

    Args:
        database_url: With a role that may read ``PredictionLog``, ``ModelVersion``, ``LogArchive`` and its files.
        timeout_seconds: Longest time of connecting, and of each short statement.

    Raises:
        RegistryUnavailable, MigrationNeeded: As :func:`translated`.
    """
    connection = await connect(
        database_url, timeout_seconds=timeout_seconds, application_name="understudy-query", server_settings=SESSION
    )
    try:
        async with translated("the log cannot be read"):
            await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The lock comes before the snapshot: a month detached in between would be in neither place.
            await connection.execute("LOCK TABLE predictionlog IN ACCESS SHARE MODE")
        yield PostgresLogSnapshot(connection)
    finally:
        connection.terminate()


class PostgresLogSnapshot:
    """Reads over a connection with an open transaction."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._rows = PostgresLogRows(connection)

    @property
    def rows(self) -> PostgresLogRows:
        return self._rows

    async def files(self, wanted: WantedRows) -> Sequence[FilesOf]:
        days = [datetime.fromtimestamp(moment, UTC).date() for moment in wanted[:2]]
        models = None if wanted.models is None else list(wanted.models)
        async with translated("the list of archived files cannot be read"):
            rewritten = await self._connection.fetch(_BEING_REWRITTEN, wanted.since, wanted.until)
            found = await self._connection.fetch(_FILES, *days, models)
        if rewritten:
            raise ArchiveDiffers(
                f"rows are in {rewritten[0]['detached_as']} only: their files are being written again",
                hint="Run understudy db archive to its end, then ask again.",
            )
        return [
            FilesOf(location, [ArchivedFile(*row[1:]) for row in rows])
            for location, rows in groupby((tuple(row) for row in found), key=lambda row: row[0])
        ]
