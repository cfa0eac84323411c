"""An index of the log by entity, which an installation may have: an entity's calls are found without reading others.

No migration makes it, since every row that is written pays for it. Months that are made later have it by themselves.
It is of the hour of a call and a hash of its entity's id. By the hour, rows that are written now go into few pages,
those of this hour, however long the log is; a hash is a number in place of a text, and equal ones are kept once.
Questions ask for the hours and the hash (:func:`found_by_index`) beside the id and the time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, translated

NAME = "predictionlog_of_entity"
_HOUR = "date_bin('1 hour', {}, '2000-01-01 00:00+00'::timestamptz)"
_HASH = "hashtext({}::text)"
_KEY = f"(({_HOUR.format('predicted_at')}), ({_HASH.format('entity_id')}))"
BUILD_SECONDS = 86_400.0
"""Longest time of one month's index: 10 million rows take a minute, and callers wait for none of it."""
_WHAT, _APPLICATION = "the index by entity could not be made", "understudy-entity-index"
_LOCK_MS = 2_000
"""Longest wait of the short statements for a lock, behind which writers would queue."""
_IS_OTHER = f"SELECT pg_get_indexdef(to_regclass('{NAME}')) NOT LIKE '%date_bin%'"
_IS_THERE = f"SELECT to_regclass('{NAME}') IS NOT NULL"
# Of a month that is attached, Postgres has chosen the index's name.
_PARTS = f"""
    SELECT quote_ident(part.relname) AS part, quote_ident(part.relname || '_of_entity') AS built,
           own.indexrelid IS NOT NULL AS is_indexed, coalesce(pg_relation_size(own.indexrelid), 0) AS bytes
    FROM pg_inherits AS month JOIN pg_class AS part ON part.oid = month.inhrelid
    LEFT JOIN (
        SELECT x.indrelid, x.indexrelid FROM pg_index AS x JOIN pg_inherits AS i ON i.inhrelid = x.indexrelid
        WHERE i.inhparent = to_regclass('{NAME}')
    ) AS own ON own.indrelid = part.oid
    WHERE month.inhparent = 'predictionlog'::regclass ORDER BY part.relname
"""  # noqa: S608 - a constant


class EntityIndex(NamedTuple):
    """Which months of the log have the index."""

    is_there: bool
    """Whether months that are made from now on have it, too."""
    indexed: tuple[str, ...]
    missing: tuple[str, ...]
    size_bytes: int
    """Of all months' indexes."""


def found_by_index(since: str, until: str, entity: str) -> str:
    """Return the SQL condition by which the index is used.

    Args:
        since: SQL of the moment from which on calls are asked for.
        until: SQL of the moment before which they are.
        entity: SQL of the entity's id.
    """
    hours = f"SELECT generate_series({_HOUR.format(since)}, {until}, INTERVAL '1 hour')"
    is_in_them = f"{_HOUR.format('predicted_at')} = ANY (ARRAY({hours}))"
    return f"{is_in_them} AND {_HASH.format('entity_id')} = {_HASH.format(entity)}"


async def read_entity_index(database_url: str, *, timeout_seconds: float) -> EntityIndex:
    """Return which months have the index.

    Raises:
        MigrationNeeded: The schema is missing.
        RegistryUnavailable: Postgres does not answer in time.
    """
    async with _opened(database_url, timeout_seconds) as connection:
        return await _read(connection)


async def make_entity_index(database_url: str, *, timeout_seconds: float) -> EntityIndex:
    """Give every month the index, one after the other; writers go on meanwhile. What was broken off goes on.

    Args:
        database_url: A login of the tables' owner.
        timeout_seconds: Of each short statement; building one month's index may take :data:`BUILD_SECONDS`.

    Raises:
        LoginNotAllowed: The login does not own the tables.
        MigrationNeeded, RegistryUnavailable: As :func:`read_entity_index`; months that were done stay.
    """
    async with _opened(database_url, timeout_seconds) as connection:
        if await connection.fetchval(_IS_OTHER):  # of the id itself, as it was made until November 2026
            await _shortly(connection, f"DROP INDEX {NAME}")
        await _shortly(connection, f"CREATE INDEX IF NOT EXISTS {NAME} ON ONLY predictionlog {_KEY}")
        await _drop_unfinished(connection)
        for row in await _missing(connection):
            create = f"CREATE INDEX CONCURRENTLY {row['built']} ON {row['part']} {_KEY}"
            await connection.execute(create, timeout=BUILD_SECONDS)
            await _shortly(connection, f"ALTER INDEX {NAME} ATTACH PARTITION {row['built']}")
            # Of a hash nothing is known before: Postgres would guess, and read by time.
            await connection.execute(f"ANALYZE {row['part']}", timeout=BUILD_SECONDS)
        return await _read(connection)


async def drop_entity_index(database_url: str, *, timeout_seconds: float) -> EntityIndex:
    """Take the index from every month, and return what was there.

    Raises:
        LoginNotAllowed, MigrationNeeded, RegistryUnavailable: As :func:`make_entity_index`.
    """
    async with _opened(database_url, timeout_seconds) as connection:
        found = await _read(connection)
        await _shortly(connection, f"DROP INDEX IF EXISTS {NAME}")
        await _drop_unfinished(connection)
        return found


@asynccontextmanager
async def _opened(database_url: str, timeout_seconds: float) -> AsyncIterator[asyncpg.Connection]:
    async with translated(_WHAT):
        connection = await connect(database_url, timeout_seconds=timeout_seconds, application_name=_APPLICATION)
        try:
            yield connection
        finally:
            connection.terminate()


async def _read(connection: asyncpg.Connection) -> EntityIndex:
    rows = await connection.fetch(_PARTS)
    indexed = tuple(row["part"] for row in rows if row["is_indexed"])
    missing = tuple(row["part"] for row in rows if not row["is_indexed"])
    return EntityIndex(await connection.fetchval(_IS_THERE), indexed, missing, sum(row["bytes"] for row in rows))


async def _missing(connection: asyncpg.Connection) -> list[asyncpg.Record]:
    return [row for row in await connection.fetch(_PARTS) if not row["is_indexed"]]


async def _drop_unfinished(connection: asyncpg.Connection) -> None:
    """Drop what a command left that was broken off: it is there, and no question uses it."""
    for row in await _missing(connection):
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {row['built']}", timeout=BUILD_SECONDS)


async def _shortly(connection: asyncpg.Connection, statement: str) -> None:
    """Carry out what takes a lock on the whole log, without waiting for it for long."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
        await connection.execute(statement)
