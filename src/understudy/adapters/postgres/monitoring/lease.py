"""Leader election by a lease, a row of ``MonitorLease`` or ``AgentLease``; its epoch fences every write of the holder.

It takes three locks of one row. A renewal changes no key, so it takes ``NO KEY UPDATE``; a fenced transaction holds
``KEY SHARE`` until it ends, which renewals do not wait for; a takeover asks for ``UPDATE``, which waits for both.
Each call is a single statement outside a transaction, so that a process that freezes in the middle holds no lock.

Source:
    Table 13.3 of the PostgreSQL manual, "Conflicting Row-Level Locks".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

import asyncpg

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.errors import LeadershipLost
from understudy.ports.monitoring.lease import LEASE_SECONDS, Epoch

NAME = "monitor"
FENCE_SECONDS = 2
"""Longest statement, and longest pause between two, of a fenced transaction.

A leader that freezes inside one would block the next leader for ever. Two pauses of this length end before the lease
can expire: the last renewal is at most ``RENEW_SECONDS`` (2) old when it freezes.
"""

_RENEW = "UPDATE MonitorLease SET renewed_at = clock_timestamp() WHERE name = $1 AND holder = $2 RETURNING epoch"
# After a wait for the lock Postgres reads the row again: after a renewal or a takeover there is nothing to take.
_TAKE = f"""
    WITH free AS (
        SELECT name FROM MonitorLease
        WHERE name = $1 AND renewed_at <= clock_timestamp() - INTERVAL '{LEASE_SECONDS} seconds' FOR UPDATE)
    UPDATE MonitorLease SET holder = $2, epoch = epoch + 1, renewed_at = clock_timestamp()
    FROM free WHERE MonitorLease.name = free.name RETURNING epoch
"""  # noqa: S608 - a constant
_BEGIN = """
    INSERT INTO MonitorLease (name, holder, epoch, renewed_at) VALUES ($1, $2, 1, clock_timestamp())
    ON CONFLICT DO NOTHING RETURNING epoch
"""
# The epoch stays: the next holder must find the last one.
_RELEASE = "UPDATE MonitorLease SET holder = '', renewed_at = 'epoch' WHERE name = $1 AND holder = $2"
_FENCE = f"""
    SELECT set_config('statement_timeout', '{FENCE_SECONDS}s', true),
           set_config('idle_in_transaction_session_timeout', '{FENCE_SECONDS}s', true)
    FROM MonitorLease WHERE name = $1 AND epoch = $2 FOR KEY SHARE
"""  # noqa: S608 - a constant
# The longest wait of the statement for any other lock: it may not keep the next leader out for longer.
_FENCE_OF_ONE = f"""
    SELECT set_config('lock_timeout', '{FENCE_SECONDS}s', true) FROM MonitorLease
    WHERE name = %s AND epoch = %s FOR KEY SHARE
"""  # noqa: S608 - a constant
LeaseTable = Literal["MonitorLease", "AgentLease"]


class LeaseRow(NamedTuple):
    """The row that holders compete for. Each kind of process has a table of its own, and no right on the other."""

    table: LeaseTable
    name: str

    def sql(self, statement: str) -> str:
        """Return a statement on ``MonitorLease`` for the row's own table."""
        return statement.replace("MonitorLease", self.table)


MONITOR = LeaseRow("MonitorLease", NAME)


def agent_of(server: str) -> LeaseRow:
    """Return the row of a model server's agent."""
    return LeaseRow("AgentLease", server)


class PostgresLease:
    """Uses one connection of its own, opened at the first call and again after each failure.

    It needs no session state, so it works through a pooler too. For one task at a time.

    Args:
        database_url: With a role that may select, insert and update in the row's table.
        timeout_seconds: Longest time of one call, connecting included. Short, so that after a dead connection there is
            time for another one before the lease expires.
        row: What is competed for.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float = 1.5, row: LeaseRow = MONITOR) -> None:
        self._kept = KeptConnection(database_url, f"the {row.name}'s lease", timeout_seconds, "understudy-lease")
        self._row = row

    async def take_or_renew(self, holder: str) -> Epoch | None:
        return await self._first_answer(holder, _RENEW, _TAKE, _BEGIN)

    async def release(self, holder: str) -> None:
        await self._first_answer(holder, _RELEASE)

    async def close(self) -> None:
        """Drop the connection."""
        self._kept.drop()

    async def _first_answer(self, holder: str, *statements: str) -> Epoch | None:
        """Run the statements until one of them gives a row."""
        async with self._kept.use() as connection:
            for statement in statements:
                found: Epoch | None = await connection.fetchval(self._row.sql(statement), self._row.name, holder)
                if found is not None:
                    return found
        return None


@asynccontextmanager
async def fenced(connection: asyncpg.Connection, epoch: Epoch | None, row: LeaseRow = MONITOR) -> AsyncIterator[None]:
    """Open a transaction as :func:`require_epoch` asks for it; a command has no epoch, and needs no fence."""
    async with connection.transaction():
        if epoch is not None:
            await require_epoch(connection, epoch, row)
        yield


def fence_of_one_statement(table: LeaseTable, name: str, epoch: str) -> str:
    """Return a query for the ``WITH`` of a single statement that writes, which needs no transaction then.

    It has a row where the lease is held in this epoch; what the statement writes must depend on that. Until the
    statement ends no other process can take the lease. ``name`` and ``epoch`` are the statement's parameters for them.
    """
    return LeaseRow(table, "").sql(_FENCE_OF_ONE) % (name, epoch)


async def require_epoch(connection: asyncpg.Connection, epoch: Epoch, row: LeaseRow = MONITOR) -> None:
    """Fence the open transaction of ``connection`` with ``epoch``, the fencing token of who holds the lease.

    To be the transaction's first statement. Until the transaction ends no other process can take the lease, and
    Postgres bounds each of its statements, and each pause between two, by ``FENCE_SECONDS``.

    Raises:
        LeadershipLost: Another process holds the lease; leave the transaction without a write.
        RuntimeError: No transaction is open, so the fence would hold for this one statement only.
    """
    if not connection.is_in_transaction():
        raise RuntimeError("require_epoch outside a transaction fences nothing")
    if await connection.fetchrow(row.sql(_FENCE), row.name, epoch) is None:
        raise LeadershipLost(f"epoch {epoch} is over")
