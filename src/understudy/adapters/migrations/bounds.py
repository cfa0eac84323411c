"""Time-outs of a migration, and the sessions that block it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import asyncpg
from sqlalchemy import Connection, text

from understudy.adapters.postgres.connections.connection import VENDOR_ERRORS, connect
from understudy.errors import RegistryUnavailable

CONNECT_SECONDS = 4.0
FIRST_POLL_SECONDS = 0.4
"""Most migrations end before, and need no second connection."""
POLL_SECONDS = 0.2

# Without the text of the holder's query, which may contain secrets. States and times of other logins' sessions are
# NULL to a login without pg_read_all_stats.
_HOLDERS = """
    SELECT waiting.locktype, waiting.mode, waiting.relation::regclass::text AS relation, holder.pid,
           activity.application_name, activity.usename, activity.state,
           to_char(activity.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS transaction_began,
           to_char(activity.query_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS query_began
    FROM pg_locks AS waiting
    CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS holder (pid)
    LEFT JOIN pg_stat_activity AS activity ON activity.pid = holder.pid
    WHERE waiting.pid = $1 AND NOT waiting.granted
    ORDER BY activity.xact_start NULLS LAST, holder.pid
    LIMIT 5
"""


class Patience(NamedTuple):
    """The lock and statement time-outs of a migration."""

    lock_seconds: float = 4.0
    """Other sessions that need the table queue behind the migration for as long (warehouse uses the same bound)."""
    statement_seconds: float = 60.0


PATIENCE = Patience()


class Wait(NamedTuple):
    """The lock that a session waited for, and the sessions that held it."""

    lock: str
    holders: Sequence[str]
    pids: Sequence[int]


def set_bounds(connection: Connection, patience: Patience) -> None:
    """Set the lock and statement time-outs of the open transaction."""
    setting = text("SELECT set_config(:name, :value, TRUE)")
    for name, seconds in (("lock_timeout", patience.lock_seconds), ("statement_timeout", patience.statement_seconds)):
        connection.execute(setting, {"name": name, "value": f"{seconds * 1_000:.0f}ms"})


class LockWatch:
    """Watches a session that may wait for locks, and keeps which sessions blocked it last.

    It polls over a connection of its own: the waiting session cannot be asked, and after its time-out the blockers are
    unknown. Where it cannot connect or read, it keeps nothing.
    """

    def __init__(self, database_url: str, pid: int) -> None:
        self._database_url = database_url
        self._pid = pid
        self._task: asyncio.Task[None] | None = None
        self.blocked_by: Wait | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _poll(self) -> None:
        await asyncio.sleep(FIRST_POLL_SECONDS)
        with suppress(RegistryUnavailable, *VENDOR_ERRORS):
            connection = await connect(
                self._database_url, timeout_seconds=CONNECT_SECONDS, application_name="understudy-lock-watch"
            )
            try:
                while True:
                    self._keep(await connection.fetch(_HOLDERS, self._pid))
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                connection.terminate()

    def _keep(self, rows: Sequence[asyncpg.Record]) -> None:
        if rows:
            first = rows[0]
            lock = f"{first['mode']} on {first['relation'] or first['locktype']}"
            self.blocked_by = Wait(lock, [_holder_text(dict(row)) for row in rows], [row["pid"] for row in rows])


def _holder_text(row: Mapping[str, object]) -> str:
    """Return a lock's holder in words, without what the login may not see."""
    facts = [
        f"{label} {row[name]}"
        for name, label in (
            ("application_name", "application"),
            ("usename", "login"),
            ("state", "state"),
            ("transaction_began", "transaction begun"),
            ("query_began", "last query begun"),
        )
        if row[name]
    ]
    return f"pid {row['pid']} ({', '.join(facts)}; times in UTC)" if facts else f"pid {row['pid']}"
