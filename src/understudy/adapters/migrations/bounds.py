"""How long a migration may wait and work, and who kept it waiting."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

import asyncpg
from sqlalchemy import Connection, text

from understudy.adapters.postgres.connection import VENDOR_ERRORS, connect
from understudy.errors import RegistryUnavailable

LOOKER_SECONDS = 4.0
FIRST_LOOK_SECONDS = 0.4
"""Most migrations are done by then, and need no second connection."""
LOOK_SECONDS = 0.2

# Without the text of the holder's query, which may hold what its caller keeps secret. States and times of other
# people's sessions are NULL to a login without pg_read_all_stats.
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
    """How long a migration may wait for one lock, and work on one statement."""

    lock_seconds: float = 4.0
    """Whoever needs the same table queues behind the migration for as long (warehouse uses the same bound)."""
    statement_seconds: float = 60.0


PATIENCE = Patience()


class Wait(NamedTuple):
    """What a session waited for, and the pids that it waited for it behind."""

    lock: str
    holders: Sequence[str]
    pids: Sequence[int]


def set_bounds(connection: Connection, patience: Patience) -> None:
    """Bound every wait for a lock, and every statement, of the transaction that is open."""
    setting = text("SELECT set_config(:name, :value, TRUE)")
    for name, seconds in (("lock_timeout", patience.lock_seconds), ("statement_timeout", patience.statement_seconds)):
        connection.execute(setting, {"name": name, "value": f"{seconds * 1_000:.0f}ms"})


class LockWatch:
    """Beside a session that may wait for locks: remembers who it waited for last.

    Looks from a connection of its own, because the session itself can say nothing while it waits, and nothing is left
    to be seen when it has given up. Where it cannot connect or look, nothing is remembered.

    Args:
        database_url: The session's database.
        pid: The session's process in Postgres.
    """

    def __init__(self, database_url: str, pid: int) -> None:
        self._database_url = database_url
        self._pid = pid
        self._task: asyncio.Task[None] | None = None
        self.seen: Wait | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._look())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _look(self) -> None:
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        with suppress(RegistryUnavailable, *VENDOR_ERRORS):
            connection = await connect(
                self._database_url, timeout_seconds=LOOKER_SECONDS, application_name="understudy-lock-watch"
            )
            try:
                while True:
                    self._remember(await connection.fetch(_HOLDERS, self._pid))
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                connection.terminate()

    def _remember(self, rows: Sequence[asyncpg.Record]) -> None:
        if rows:
            first = rows[0]
            lock = f"{first['mode']} on {first['relation'] or first['locktype']}"
            self.seen = Wait(lock, [_holder_text(dict(row)) for row in rows], [row["pid"] for row in rows])


def _holder_text(row: Mapping[str, object]) -> str:
    """Return who holds a lock; what the login may not see is left out."""
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
