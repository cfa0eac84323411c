"""A month that the archive job lets go is a table for days: a stolen login of the job deletes nothing at once."""

from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
from worlds.archive import few_days, fill, ids_seen, month_ago, versions_of

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.postgres.prediction_log.partitions import PostgresPartitionKeeper

ROWS = 40
TABLES = "SELECT count(*) FROM pg_class WHERE relname ~ '^predictionlog_.*_archived_' AND relkind = 'r'"
# As the runbook LogMonthToBeDropped has it.
BRING_BACK = """
    ALTER TABLE {table} RENAME TO {partition};
    ALTER TABLE PredictionLog ATTACH PARTITION {partition} FOR VALUES FROM ('{start}') TO ('{end}');
    DELETE FROM LogArchive WHERE id = {id};
"""


@pytest.fixture
async def retention_url(database: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_retention")
    yield f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def invent_files(url: str) -> None:
    """Let the month before the last one go without writing a file of it, with the archive job's rights alone."""
    month = month_ago(3)
    thief = await asyncpg.connect(url, timeout=10)
    try:
        archive_id = await thief.fetchval(
            "INSERT INTO LogArchive (partition_name, month_start, month_end, location)"
            " VALUES ($1, $2, $3, 'file:///nowhere') RETURNING id",
            month.partition,
            month.start,
            month.end,
        )
        await thief.execute(
            "INSERT INTO LogArchiveFile (archive_id, key, model_name, day, row_count, byte_count, sha256)"
            " VALUES ($1, 'predictionlog/x.parquet', 'churn', now(), $2, 1, repeat('0a', 32))",
            archive_id,
            ROWS,
        )
        await thief.execute(
            "UPDATE LogArchive SET state = 'verified', row_count = $2,"
            " fingerprint = understudy_archive_fingerprint($1) WHERE id = $1",
            archive_id,
            ROWS,
        )
        assert await thief.fetchval("SELECT understudy_detach_archived($1)", archive_id)
        await thief.execute("SELECT understudy_drop_archived($1)", archive_id)
        await thief.execute("SELECT understudy_drop_due()")
        for statement in ("drop_after = now()", "dropped_by = 'boss'", "detached_as = NULL"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await thief.execute(f"UPDATE LogArchive SET {statement}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await thief.execute("UPDATE Installation SET archive_grace = '0'")
    finally:
        await thief.close(timeout=5)


async def test_a_month_whose_files_were_invented_is_held_by_its_owner_and_brought_back_whole(
    database, database_url, retention_url
):
    await fill(database, [month_ago(3)], ROWS, await versions_of(database), few_days)
    await invent_files(retention_url)
    month = month_ago(3)
    row = await database.fetchrow("SELECT * FROM LogArchive")
    seen = await PostgresPartitionKeeper(database_url, timeout_seconds=20).ensure()

    await database.execute("UPDATE LogArchive SET drop_after = 'infinity'")
    dropped = await database.fetchval("SELECT understudy_drop_due()")
    place = {"table": row["detached_as"], "partition": month.partition, "id": row["id"]}
    await database.execute(BRING_BACK.format(**place, start=month.start, end=month.end))

    assert (dropped, seen.awaiting_drop) == (0, 1)
    assert row["dropped_by"] in retention_url
    assert await database.fetchval("SELECT count(*) FROM PredictionLog") == ROWS


async def test_the_archive_jobs_month_is_dropped_once_its_time_has_come(database, retention_url, tmp_path):
    await fill(database, [month_ago(3)], ROWS, await versions_of(database), few_days)
    store = FolderArchive(tmp_path / "archive")

    moved = await archive(retention_url, store, Moments("never", lambda: None))
    await archive(retention_url, store, Moments("never", lambda: None))
    kept = await database.fetchval(TABLES)
    grace = await database.fetchval("SELECT drop_after - changed_at FROM LogArchive")
    await database.execute("UPDATE LogArchive SET drop_after = now()")
    await archive(retention_url, store, Moments("never", lambda: None))

    assert (sum(month.rows for month in moved), kept, grace.days) == (ROWS, 1, 3)
    assert await database.fetchval(TABLES) == 0
    assert set((await ids_seen(retention_url)).values()) == {1}


async def test_under_the_owners_login_a_month_is_dropped_at_once(database, database_url, tmp_path):
    await fill(database, [month_ago(3)], ROWS, await versions_of(database), few_days)

    await archive(database_url, FolderArchive(tmp_path / "archive"), Moments("never", lambda: None))

    assert await database.fetchval(TABLES) == 0
