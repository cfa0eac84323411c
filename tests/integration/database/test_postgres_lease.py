"""The fence of the monitor's writes, and what only a real Postgres can do to the lease."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest

from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS
from understudy.adapters.postgres.monitoring.lease import FENCE_SECONDS, PostgresLease, require_epoch
from understudy.errors import LeadershipLost, MigrationNeeded, RegistryUnavailable
from understudy.monitoring.worker import RENEW_SECONDS
from understudy.ports.monitoring.lease import LEASE_SECONDS

ONE, OTHER = "a:1:x", "b:2:y"
EXPIRE = "UPDATE MonitorLease SET renewed_at = renewed_at - INTERVAL '1 minute'"


@pytest.fixture
async def lease(database_url: str) -> AsyncIterator[PostgresLease]:
    opened = PostgresLease(database_url, timeout_seconds=10)
    yield opened
    await opened.close()


@pytest.fixture
async def writer(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The connection of a store that writes for the leader."""
    connection = await asyncpg.connect(database_url, timeout=10, command_timeout=30, statement_cache_size=0)
    await connection.execute("CREATE TABLE Written (epoch BIGINT)")
    yield connection
    connection.terminate()


async def write(connection: asyncpg.Connection, epoch: int) -> None:
    async with connection.transaction():
        await require_epoch(connection, epoch)
        await connection.execute("INSERT INTO Written VALUES ($1)", epoch)


async def written(connection: asyncpg.Connection) -> list[int]:
    return [row[0] for row in await connection.fetch("SELECT epoch FROM Written ORDER BY epoch")]


async def leading(lease: PostgresLease) -> int:
    epoch = await lease.take_or_renew(ONE)
    assert epoch is not None
    return epoch


async def taken_over(lease: PostgresLease, database: asyncpg.Connection) -> int:
    await database.execute(EXPIRE)
    epoch = await lease.take_or_renew(OTHER)
    assert epoch is not None
    return epoch


async def test_only_the_epoch_that_leads_can_write(lease, writer, database):
    first = await leading(lease)
    await write(writer, first)
    second = await taken_over(lease, database)

    for stale in (first, second + 1):
        with pytest.raises(LeadershipLost):
            await write(writer, stale)
    await write(writer, second)

    assert await written(database) == [first, second]


async def test_a_fence_outside_a_transaction_is_a_defect_and_says_so(lease, writer):
    epoch = await lease.take_or_renew(ONE)

    with pytest.raises(RuntimeError, match="transaction"):
        await require_epoch(writer, epoch)


async def test_a_takeover_waits_for_a_fenced_write_under_way_and_renewals_do_not(lease, writer, database, database_url):
    first = await lease.take_or_renew(ONE)
    other = PostgresLease(database_url, timeout_seconds=10)
    async with writer.transaction():
        await require_epoch(writer, first)
        await database.execute(EXPIRE)
        taking = asyncio.create_task(other.take_or_renew(OTHER))
        await asyncio.sleep(0.3)
        waited = not taking.done()
        await writer.execute("INSERT INTO Written VALUES ($1)", first)
    second = await taking
    async with writer.transaction():
        await require_epoch(writer, first + 1)

        async with asyncio.timeout(30):
            renewed = await other.take_or_renew(OTHER)
    await other.close()

    assert waited
    assert second == renewed == first + 1
    assert await written(database) == [first]


async def test_a_leader_that_renews_while_somebody_waits_to_take_over_stays(lease, writer, database, database_url):
    epoch = await lease.take_or_renew(ONE)
    other = PostgresLease(database_url, timeout_seconds=10)
    async with writer.transaction():
        await require_epoch(writer, epoch)
        await database.execute(EXPIRE)
        taking = asyncio.create_task(other.take_or_renew(OTHER))
        await asyncio.sleep(0.3)

        async with asyncio.timeout(30):
            renewed = await lease.take_or_renew(ONE)
    taken = await taking
    await other.close()

    assert renewed == epoch
    assert taken is None


async def test_a_fence_that_waits_for_a_takeover_then_refuses(lease, writer, database):
    first = await lease.take_or_renew(ONE)
    async with database.transaction():
        await database.execute("SELECT 1 FROM MonitorLease FOR UPDATE")
        await database.execute("UPDATE MonitorLease SET holder = $1, epoch = epoch + 1", OTHER)
        writing = asyncio.create_task(write(writer, first))
        await asyncio.sleep(0.3)
        waited = not writing.done()

    assert waited
    with pytest.raises(LeadershipLost):
        await writing
    assert await written(database) == []


@pytest.mark.timed
async def test_a_leader_that_freezes_inside_a_fenced_write_does_not_keep_the_next_one_out(
    lease, writer, database, database_url
):
    first = await lease.take_or_renew(ONE)
    transaction = writer.transaction()
    await transaction.start()
    await require_epoch(writer, first)
    await writer.execute("INSERT INTO Written VALUES ($1)", first)
    frozen_at = time.monotonic()
    await database.execute(EXPIRE)

    second = await lease.take_or_renew(OTHER)

    assert second == first + 1
    assert time.monotonic() - frozen_at < FENCE_SECONDS + 2
    with pytest.raises(VENDOR_ERRORS):
        await transaction.commit()
    assert await written(database) == []


async def test_the_bounds_of_a_fenced_write_end_with_it(lease, writer):
    epoch = await lease.take_or_renew(ONE)
    names = ("statement_timeout", "idle_in_transaction_session_timeout")

    async def bounds() -> list[str]:
        return [await writer.fetchval(f"SHOW {name}") for name in names]

    before = await bounds()
    async with writer.transaction():
        await require_epoch(writer, epoch)
        within = await bounds()

    assert within == [f"{FENCE_SECONDS}s"] * 2
    assert await bounds() == before == ["0", "0"]


def test_a_fenced_write_of_a_frozen_leader_is_over_before_its_lease_is():
    assert RENEW_SECONDS + 2 * FENCE_SECONDS <= LEASE_SECONDS


async def test_a_connection_that_was_ended_is_opened_again(lease, database):
    epoch = await lease.take_or_renew(ONE)
    await database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'understudy-lease' AND datname = current_database()"
    )

    with suppress(RegistryUnavailable):  # whether the end was noticed before the call, or by it
        await lease.take_or_renew(ONE)

    assert await lease.take_or_renew(ONE) == epoch


async def test_a_call_that_was_cancelled_leaves_the_lease_usable(lease, database):
    epoch = await lease.take_or_renew(ONE)
    async with database.transaction():
        await database.execute("SELECT 1 FROM MonitorLease FOR UPDATE")
        renewing = asyncio.create_task(lease.take_or_renew(ONE))
        await asyncio.sleep(0.2)
        renewing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await renewing

    assert await lease.take_or_renew(ONE) == epoch


@pytest.mark.timed
async def test_without_a_server_it_says_so_in_time():
    nowhere = PostgresLease("postgresql://127.0.0.1:1/nowhere")
    began = time.monotonic()

    with pytest.raises(RegistryUnavailable):
        await nowhere.take_or_renew(ONE)

    assert time.monotonic() - began < 3


async def test_a_database_without_the_table_needs_a_migration(empty_database_url):
    lease = PostgresLease(empty_database_url, timeout_seconds=10)

    with pytest.raises(MigrationNeeded):
        await lease.take_or_renew(ONE)
    await lease.close()
