"""``LogRows`` over ``PredictionLog``: ``COPY`` in CSV, which Arrow reads about as fast as Postgres sends it."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from understudy.adapters.archive.parquet_log import LogFileWriter, inspect
from understudy.adapters.postgres.connections.connection import connect, translated
from understudy.ports.prediction_log.log_archive import ModelDay, OnFile, RowSource, WrittenFile

PIECE_BYTES = 4 * 1_048_576
"""Of CSV that Arrow parses at once."""
SILENT_SECONDS = 300.0
"""Longest time without a row: Postgres counts and sorts before it sends the first one."""
_FOREVER_SECONDS = 86_400.0
"""asyncpg needs a bound for a whole COPY; SILENT_SECONDS is the effective one."""
_TABLE = re.compile(r"predictionlog(_\d{4}_\d{2}_archived_\d+)?")
_IN_RANGE = "predicted_at >= to_timestamp({since!r}) AND predicted_at < to_timestamp({until!r})"
_DAYS = """
    SELECT v.model_name, counted.day::text AS day, array_agg(counted.model_version_id ORDER BY v.id) AS version_ids,
           sum(counted.rows)::bigint AS rows
    FROM (SELECT model_version_id, (predicted_at AT TIME ZONE 'UTC')::date AS day, count(*) AS rows
          FROM {table} WHERE {in_range} GROUP BY 1, 2) AS counted
    JOIN modelversion AS v ON v.id = counted.model_version_id
    WHERE $1::text[] IS NULL OR v.model_name = ANY ($1::text[])
    GROUP BY 1, 2 ORDER BY 1, 2
"""
# In the order of parquet_log.SCHEMA. Constants are folded at planning, so only one partition is scanned.
_ROWS = """
    SELECT p.id, p.model_version_id, v.version, p.entity_id, p.input_hash, p.prediction, p.latency_ms, p.predicted_at,
           p.prediction_id, p.assigned_version_id, p.score, p.latency_us, p.role, p.reason, p.status, p.error_code,
           p.bucket, p.policy_generation, p.rollout_id, p.cache_hit, p.defaulted
    FROM {table} AS p JOIN modelversion AS v ON v.id = p.model_version_id
    WHERE p.model_version_id IN ({version_ids}) AND {in_range}
      AND predicted_at >= '{day} 00:00+00' AND predicted_at < timestamptz '{day} 00:00+00' + INTERVAL '24 hours'
    ORDER BY p.predicted_at, p.id
"""
SESSION = {"TimeZone": "UTC", "DateStyle": "ISO", "extra_float_digits": "1"}
"""How values are written in CSV, whatever the server's or the login's own settings are."""


@asynccontextmanager
async def open_archive_rows(database_url: str, *, timeout_seconds: float) -> AsyncIterator["PostgresLogRows"]:
    """Open a connection over which the archive reads rows of ``PredictionLog``.

    Args:
        database_url: With a role that may read ``PredictionLog`` and the labels of ``ModelVersion``.
        timeout_seconds: Longest time of connecting.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    connection = await connect(
        database_url,
        timeout_seconds=timeout_seconds,
        application_name="understudy-archive",
        server_settings=SESSION,
    )
    try:
        yield PostgresLogRows(connection)
    finally:
        connection.terminate()


class PostgresLogRows:
    """Reads over a connection, which its opener closes."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def days(self, source: RowSource) -> Sequence[ModelDay]:
        statement = _DAYS.format(table=_checked(source.table), in_range=_in_range(source))
        models = None if source.models is None else list(source.models)
        async with translated("the rows of the log cannot be counted", SILENT_SECONDS):
            found = await self._connection.fetch(statement, models, timeout=SILENT_SECONDS)
        return [ModelDay(row["model_name"], row["day"], tuple(row["version_ids"]), row["rows"]) for row in found]

    async def export(self, source: RowSource, day: ModelDay, folder: Path, on_file: OnFile) -> None:
        statement = _ROWS.format(
            table=_checked(source.table),
            version_ids=", ".join(map(str, day.version_ids)),
            in_range=_in_range(source),
            day=day.day,
        )
        writer = LogFileWriter(folder)
        gathered = bytearray()
        clock = asyncio.get_running_loop().time

        async def write_gathered() -> None:
            piece = bytes(gathered)
            gathered.clear()
            for file in await asyncio.to_thread(writer.add, piece):
                await on_file(file)

        async def take(rows: bytes) -> None:
            # Postgres sends one row in one message, and asyncpg passes whole messages on: a piece never ends within a
            # row.
            gathered.extend(rows)
            if len(gathered) >= PIECE_BYTES:
                limit.reschedule(None)  # storing files has bounds of its own
                await write_gathered()
            limit.reschedule(clock() + SILENT_SECONDS)

        async with translated("the rows of the log cannot be read"), asyncio.timeout(SILENT_SECONDS) as limit:
            await self._connection.copy_from_query(statement, output=take, format="csv", timeout=_FOREVER_SECONDS)
            limit.reschedule(None)
            if gathered:
                await write_gathered()
            for file in await asyncio.to_thread(writer.end):
                await on_file(file)

    def inspect(self, path: Path) -> WrittenFile:
        return inspect(path)


def _checked(table: str) -> str:
    if _TABLE.fullmatch(table) is None:
        raise ValueError(f"{table!r} is no table of the log")
    return table


def _in_range(source: RowSource) -> str:
    return _IN_RANGE.format(since=float(source.since), until=float(source.until))
