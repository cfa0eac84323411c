"""A migration that meets a long transaction gives up in time, says whose it is, and leaves nothing half done."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import asyncpg
import pytest
from catalogue import Catalogue, catalogue_of, differences
from traffic.chance import IS_RANDOM
from traffic.migration_rows import columns_of, contents_of, insert_rows

from understudy.adapters import migrations
from understudy.adapters.migrations.bounds import Patience
from understudy.errors import MigrationBlocked, RegistryUnavailable

REVISIONS = migrations.revisions()
"""One that has landed stays as it is, so only nightly runs try all of them."""
IMPATIENT = Patience(lock_seconds=1)
IN_NOBODYS_WAY = ("0010", "0011", "0013", "0014", "0020", "0029", "0036", "0042", "0044")
"""Revisions that need no lock on what was there."""
WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'predictionlog'::regclass"
WAITING_HERE = """
    SELECT count(*) FROM pg_locks
    WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
LOG_ROW = (
    "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms)"
    " SELECT min(id), 'late', repeat('ab', 32), '{}', 3 FROM ModelVersion"
)


@asynccontextmanager
async def a_session(url: str, application_name: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(
        url, timeout=10, command_timeout=60, server_settings={"application_name": application_name}
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def write_lock_everything(connection: asyncpg.Connection) -> None:
    """As a transaction does that wrote to every table and stays open."""
    for table in await columns_of(connection):
        await connection.execute(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE")


@pytest.mark.parametrize("revision", REVISIONS[1:] if IS_RANDOM else REVISIONS[-3:])
async def test_a_migration_gives_up_in_time_before_an_open_transaction_and_works_afterwards(
    at_revision, steps: Mapping[str, Catalogue], revision
):
    below = REVISIONS[REVISIONS.index(revision) - 1]
    async with (
        at_revision(below) as (url, seen),
        a_session(url, "report of the quarter") as holder,
    ):
        await insert_rows(seen, below)
        columns = await columns_of(seen)
        before = await contents_of(seen, columns)
        async with holder.transaction():
            await write_lock_everything(holder)
            await holder.execute("SELECT 'a secret of theirs'")
            if revision in IN_NOBODYS_WAY:
                await migrations.upgrade(url, revision)
            else:
                with pytest.raises(MigrationBlocked) as refused:
                    await migrations.upgrade(url, revision, patience=IMPATIENT)
                assert differences(steps[below], await catalogue_of(seen)) == []
                assert await contents_of(seen, columns) == before
                assert await migrations.current_revision(url) == below
                said = refused.value.detail + refused.value.next_step
                assert f"upgrading to {revision}" in said
                assert f"pid {holder.get_server_pid()} (application report of the quarter" in said
                assert "state idle in transaction" in said
                assert "last query begun 20" in said
                assert f"SELECT pg_terminate_backend({holder.get_server_pid()})" in said
                assert "Lock on " in said
                assert "secret" not in said

        await migrations.upgrade(url, revision)

        assert differences(steps[revision], await catalogue_of(seen)) == []
        assert await contents_of(seen, columns) == before


async def test_rows_of_the_log_queue_behind_a_waiting_migration_no_longer_than_it_waits(at_revision):
    async with (
        at_revision("0002") as (url, seen),
        a_session(url, "report of the quarter") as holder,
        a_session(url, "proxy") as proxy,
    ):
        await insert_rows(seen, "0002")
        async with holder.transaction():
            await holder.execute("SELECT count(*) FROM PredictionLog")
            upgrade = asyncio.create_task(migrations.upgrade(url, "0003", patience=IMPATIENT))
            while not await seen.fetchval(WAITING):
                assert not upgrade.done()
                await asyncio.sleep(0.01)
            # The migration waits, and what comes after it waits behind it: its lock_timeout began before this did.
            began = time.monotonic()
            await proxy.execute(LOG_ROW)
            queued_seconds = time.monotonic() - began
            is_still_held = holder.is_in_transaction()
            with pytest.raises(MigrationBlocked):
                await upgrade
            ended_seconds = time.monotonic() - began

    assert is_still_held
    assert queued_seconds <= max(ended_seconds, IMPATIENT.lock_seconds) + 1


@pytest.mark.parametrize("way", ["up", "down"])
async def test_notifications_come_and_go_beside_a_rollback_without_a_deadlock(at_revision, way):
    below, revision = REVISIONS[REVISIONS.index("0031") - 1], "0031"
    async with (
        at_revision(below if way == "up" else revision) as (url, seen),
        a_session(url, "monitor") as monitor,
    ):
        async with monitor.transaction():
            await monitor.execute("SELECT FROM ServingPolicy FOR UPDATE; LOCK TABLE Rollout IN ROW EXCLUSIVE MODE")
            move = (
                migrations.upgrade(url, revision) if way == "up" else migrations.downgrade(url, below, lose_data=True)
            )
            migration = asyncio.create_task(move)
            while not await seen.fetchval(WAITING_HERE):
                assert not migration.done()
                await asyncio.sleep(0.01)
            for table in ("ServingPolicy", "PolicyAudit", "RegistryAudit", "AlertOutbox"):
                await monitor.execute(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE")
        await migration

        assert await migrations.current_revision(url) == (revision if way == "up" else below)


async def test_whole_revisions_stay_when_a_later_one_gives_up_and_the_next_run_goes_on(at_revision):
    async with at_revision("0003") as (url, _):
        async with a_session(url, "report") as holder, holder.transaction():
            await holder.execute("LOCK TABLE OutcomeEvent IN ROW EXCLUSIVE MODE")

            with pytest.raises(MigrationBlocked, match=r"upgrading to 0007.*on outcomeevent behind pid"):
                await migrations.upgrade(url, patience=IMPATIENT)

            assert await migrations.current_revision(url) == "0006"
        assert await migrations.upgrade(url) == migrations.head()


async def test_a_login_that_may_not_look_at_others_is_told_their_pid_and_application(database, database_url):
    name = f"plain_{database.get_server_pid()}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'; ALTER TABLE Rollout OWNER TO {name}")
    await database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON alembic_version TO {name}")
    url = f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    try:
        async with a_session(database_url, "nightly export") as holder, holder.transaction():
            await holder.execute("LOCK TABLE alembic_version IN SHARE ROW EXCLUSIVE MODE")  # as a migration does

            with pytest.raises(MigrationBlocked) as refused:
                await migrations.upgrade(url, patience=IMPATIENT)

            assert f"pid {holder.get_server_pid()} (application nightly export" in refused.value.detail
            assert "waiting for another migration" in refused.value.detail
            assert "state" not in refused.value.detail.partition("pid")[2]
    finally:
        await database.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}; DROP ROLE {name}")


async def test_whoever_asks_for_the_revision_waits_for_no_migration(database, database_url):
    async with database.transaction():
        await database.execute("LOCK TABLE alembic_version IN SHARE ROW EXCLUSIVE MODE")  # as a migration does

        assert await migrations.check(database_url) == migrations.head()


async def test_a_way_down_that_cannot_have_its_lock_keeps_whole_revisions_and_is_gone_on_with(database, database_url):
    async with database.transaction():
        await database.execute("LOCK TABLE DriftHour IN ACCESS SHARE MODE")

        with pytest.raises(MigrationBlocked, match="taking 0002 back"):
            await migrations.downgrade(database_url, patience=IMPATIENT)

        assert await migrations.current_revision(database_url) == "0002"
    await migrations.downgrade(database_url)
    assert await migrations.current_revision(database_url) is None


async def test_a_statement_that_takes_too_long_is_broken_off_and_nothing_of_its_revision_is_left(
    at_revision, steps: Mapping[str, Catalogue]
):
    async with (
        at_revision("0002") as (url, seen),
        a_session(url, "report") as holder,
    ):
        await insert_rows(seen, "0002")
        async with holder.transaction():
            await holder.execute("SELECT count(*) FROM PredictionLog")

            with pytest.raises(RegistryUnavailable, match=r"upgrading to 0003: .* longer than 0.5 s") as said:
                await migrations.upgrade(url, patience=Patience(lock_seconds=60, statement_seconds=0.5))

        assert "run the command again" in said.value.next_step
        assert differences(steps["0002"], await catalogue_of(seen)) == []
        assert await migrations.upgrade(url) == migrations.head()
