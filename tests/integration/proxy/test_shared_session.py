"""Calls that share a connection: one is enough for many, none stays, and a failure costs one call."""

import asyncio
from contextlib import suppress

import asyncpg
import pytest

from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.errors import RegistryUnavailable

_PIDS = """
    SELECT pid FROM pg_stat_activity
    WHERE application_name = 'understudy-windows' AND datname = current_database() AND pid <> ALL ($1::int[])
"""


@pytest.fixture
def log(database_url: str) -> PostgresWindowLog:
    return PostgresWindowLog(database_url, timeout_seconds=5)


async def pids(database: asyncpg.Connection, *without: int) -> list[int]:
    return [row["pid"] for row in await database.fetch(_PIDS, list(without))]


async def test_calls_inside_share_one_connection_which_is_closed_at_the_end(database, log):
    async with log.shared_session():
        held = []
        for rollout_id in range(3):
            await log.of_rollout(rollout_id)
            held.append(await pids(database))

    assert held[0] == held[1] == held[2]
    assert len(held[0]) == 1
    assert log._idle == []  # noqa: SLF001 - Postgres takes a moment to see that a connection is closed


async def test_a_connection_that_was_lost_costs_one_call_at_most(database, log):
    async with log.shared_session():
        await log.of_rollout(1)
        (lost,) = await pids(database)
        await database.execute("SELECT pg_terminate_backend($1, 5000)", lost)
        with suppress(RegistryUnavailable):
            await log.of_rollout(1)
        await log.of_rollout(1)

        assert len(await pids(database, lost)) == 1


async def test_calls_at_the_same_time_have_a_connection_each_which_the_next_ones_use_again(database, log):
    async with log.shared_session():
        await asyncio.gather(*(log.of_rollout(rollout_id) for rollout_id in range(3)))
        held = set(await pids(database))
        await asyncio.gather(*(log.of_rollout(rollout_id) for rollout_id in range(3)))
        again = set(await pids(database))

    assert len(held) == 3
    assert again == held
    assert log._idle == []  # noqa: SLF001 - as above
