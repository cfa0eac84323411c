"""``PredictionLog`` in Postgres: rows and the spool's offset in one transaction."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

from understudy.adapters.postgres.connections.connection import connect, said_by
from understudy.core.prediction_log.copy_lines import texts_of
from understudy.core.prediction_log.spool_format import follows
from understudy.core.windows.window import Window, window_to_json
from understudy.errors import LoginNotAllowed, MigrationNeeded, RegistryUnavailable, UnderstudyError
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome, WriteResult

T = TypeVar("T")

# A worker that reads its offset has the spool on disk. Offsets that no worker has read for a year are deleted.
_READ_OFFSET = """
    WITH seen AS (
        UPDATE SpoolOffset SET updated_at = now() WHERE spool_id = $1 AND updated_at < now() - INTERVAL '1 day')
    SELECT segment, byte_offset FROM SpoolOffset WHERE spool_id = $1
"""
_BEGIN_OFFSET = "INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
# The condition is core.prediction_log.spool_format.follows. It is in the statement that takes the row's lock, so that a
# second shipper waits for the first one's commit and then sees the new offset (exactly-once).
_MOVE_OFFSET = """
    UPDATE SpoolOffset SET segment = $2, byte_offset = $4, updated_at = now()
    WHERE spool_id = $1 AND ((segment = $2 AND byte_offset = $3) OR (segment < $2 AND $3 = 0))
"""
# A dead letter is met again when an operator took the spool's offset back.
_KEEP_DEAD_LETTER = (
    "INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, row, why) VALUES ($1, $2, $3, $4, $5) "
    "ON CONFLICT (spool_id, segment, byte_offset) DO NOTHING"
)
# A version deleted since its call was answered gets no windows; its row is refused by the foreign key.
_REPLACE_WINDOWS = """
    INSERT INTO predictionwindow AS known (model_version_id, window_start, role, rollout_id, policy_generation, shipper,
                                           epoch, calls, errors, counts)
    SELECT version_id, to_timestamp(start), role, rollout_id, generation, shipper, epoch, calls, errors, counts::jsonb
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::int[], $8::bigint[],
                $9::bigint[], $10::text[])
        AS given (version_id, start, role, rollout_id, generation, shipper, epoch, calls, errors, counts)
    WHERE EXISTS (SELECT FROM modelversion WHERE id = version_id)
    ON CONFLICT (model_version_id, window_start, role, rollout_id, policy_generation, shipper, epoch) DO UPDATE
    SET calls = excluded.calls, errors = excluded.errors, counts = excluded.counts
"""
_ENSURE_PARTITIONS = "SELECT understudy_ensure_partitions()"
_ENSURE_MONTH = "SELECT understudy_ensure_partitions(0, $1)"

_ATTEMPTS = 4
_JITTER_SECONDS = 0.05
_MONTHS_AT_ONCE = 12
_LOCK_SHARE = 0.4
_STATEMENT_SHARE = 0.8
_WHY_CHARACTERS = 500
_TRANSIENT = ("40P01", "40001", "53100")
"""Deadlock, serialization failure, disk full: retried within the same call."""
_ROW_CLASSES = ("22", "23", "54")
"""Data exception, constraint violation, program limit (JSON nested too deep): what a row's content can cause."""
_SCHEMA_CLASS = "42"
_LOST = (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError)


class PostgresPredictionStore:
    """Ships over one connection of its own, opened at the first call and again after each failure.

    Args:
        database_url: With a role that may insert into ``PredictionLog`` and ``PredictionDeadLetter`` and update
            ``SpoolOffset``. May lead through a pooler in transaction mode.
        timeout_seconds: Longest time of one call; Postgres' own time-outs are earlier, so that its reason arrives.
        is_sample_alone: Insert the rows with inputs and no others, which another log has; the offset moves past all.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float, is_sample_alone: bool = False) -> None:
        self._database_url = database_url
        self._is_sample_alone = is_sample_alone
        self._timeout_seconds = timeout_seconds
        milliseconds = timeout_seconds * 1000
        self._begin = (
            f"BEGIN; SET LOCAL lock_timeout = {milliseconds * _LOCK_SHARE:.0f}; "
            f"SET LOCAL statement_timeout = {milliseconds * _STATEMENT_SHARE:.0f}"
        )
        self._connection: asyncpg.Connection | None = None
        self._in_use = asyncio.Lock()

    async def committed(self, spool_id: str) -> tuple[int, int]:
        """Return ``(segment, offset)`` up to which the spool's rows are in the log."""

        async def read(connection: asyncpg.Connection) -> tuple[int, int]:
            async with self._transaction(connection):
                found = await connection.fetchrow(_READ_OFFSET, spool_id)
            return (0, 0) if found is None else (found["segment"], found["byte_offset"])

        return await self._call(read)

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        """Insert the rows, replace the windows and move the spool's offset in one transaction, or nothing of it."""
        rows = _with_inputs(batch) if self._is_sample_alone else batch.rows

        async def copy(connection: asyncpg.Connection) -> None:
            if rows:
                # A bytearray, because asyncpg takes bytes for the path of a file; not in pieces, because it would not
                # notice a lost connection while it waits to send the next one.
                source = bytearray().join(texts_of(rows))
                await connection.copy_to_table(
                    "predictionlog",
                    source=source,  # type: ignore[arg-type] # asyncpg-stubs does not know the buffer protocol
                    columns=list(batch.columns),
                    format="text",
                )
            if windows:
                await connection.execute(_REPLACE_WINDOWS, *_columns_of(windows))

        try:
            return WriteResult(await self._move(batch, copy))
        except asyncpg.PostgresError as error:
            if not _is_missing_partition(error):
                return WriteResult(WriteOutcome.REJECTED, _reason(error))
        try:
            await self._call(lambda connection: self._ensure_partitions(connection, batch))
            return WriteResult(await self._move(batch, copy))
        except asyncpg.PostgresError as error:
            return WriteResult(WriteOutcome.REJECTED, _reason(error))

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        """Put one poison row into the dead-letter table and move the offset past it."""
        text = why.replace("\0", "")[:_WHY_CHARACTERS]

        async def keep_dead_letter(connection: asyncpg.Connection) -> None:
            await connection.execute(_KEEP_DEAD_LETTER, batch.spool_id, batch.segment, batch.start, batch.rows[0], text)

        try:
            return await self._move(batch, keep_dead_letter)
        except asyncpg.PostgresError as error:
            raise _translated(error) from error

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            # Not close(): it waits for a server that may be frozen.
            connection.terminate()

    async def _move(self, batch: SpooledBatch, insert: Callable[[asyncpg.Connection], Awaitable[None]]) -> WriteOutcome:
        async def transact(connection: asyncpg.Connection) -> WriteOutcome:
            async with self._transaction(connection):
                if not await _take_offset(connection, batch):
                    return WriteOutcome.OFFSET_MOVED
                await insert(connection)
            return WriteOutcome.WRITTEN

        return await self._call(transact)

    async def _ensure_partitions(self, connection: asyncpg.Connection, batch: SpooledBatch) -> None:
        """Create the partitions of these days, and those of the batch's own months (a clock may be years off)."""
        async with self._transaction(connection):
            await connection.execute(_ENSURE_PARTITIONS)
        for month in _months(batch)[:_MONTHS_AT_ONCE]:
            async with self._transaction(connection):
                await connection.execute(_ENSURE_MONTH, month)

    @asynccontextmanager
    async def _transaction(self, connection: asyncpg.Connection) -> AsyncIterator[None]:
        """Open a transaction, with time-outs in Postgres.

        Even one statement needs one: behind a pooler in transaction mode parsing and running it could otherwise meet
        two servers, and session settings would leak to the next client of that server.
        """
        await connection.execute(self._begin)
        try:
            yield
            await connection.execute("COMMIT")
        except asyncpg.PostgresConnectionError:
            raise
        except asyncpg.PostgresError:
            await connection.execute("ROLLBACK")
            raise

    async def _call(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """Run ``work``, again after a transient failure; raise errors that its rows cause, translate all others."""
        async with self._in_use:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    async with asyncio.timeout(self._timeout_seconds):
                        return await self._with_connection(work)
                except _LOST as error:
                    raise RegistryUnavailable(f"the prediction log: {said_by(error)}") from error
                except asyncpg.PostgresError as error:
                    if error.sqlstate[:2] in _ROW_CLASSES:
                        raise
                    if error.sqlstate not in _TRANSIENT or attempt == _ATTEMPTS:
                        raise _translated(error) from error
                await asyncio.sleep(random.uniform(0, _JITTER_SECONDS * attempt))
        raise AssertionError("the last attempt returns or raises")

    async def _with_connection(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        connection = self._connection or await self._open()
        # Kept only where it is usable: after a cancelled or failed COPY the state of the protocol is unknown.
        self._connection = None
        try:
            result = await work(connection)
        except asyncpg.PostgresError:
            self._keep(connection)
            raise
        except BaseException:
            connection.terminate()
            raise
        self._keep(connection)
        return result

    def _keep(self, connection: asyncpg.Connection) -> None:
        if not connection.is_closed() and not connection.is_in_transaction():
            self._connection = connection
        else:
            connection.terminate()

    async def _open(self) -> asyncpg.Connection:
        return await connect(
            self._database_url, timeout_seconds=self._timeout_seconds, application_name="understudy-log"
        )


async def _take_offset(connection: asyncpg.Connection, batch: SpooledBatch) -> bool:
    move = (batch.spool_id, batch.segment, batch.start, batch.end)
    if await connection.execute(_MOVE_OFFSET, *move) == "UPDATE 1":
        return True
    if not follows((0, 0), (batch.segment, batch.start)):
        return False
    return await connection.execute(_BEGIN_OFFSET, batch.spool_id, batch.segment, batch.end) == "INSERT 0 1"


def _with_inputs(batch: SpooledBatch) -> Sequence[bytes]:
    """Return the rows that have inputs; a segment of an early release has no such column."""
    if "inputs" not in batch.columns:
        return ()
    if batch.columns[-1] == "inputs":  # as every release so far writes them: a tab inside a text is escaped
        return [row for row in batch.rows if not row.endswith(b"\t\\N\n")]
    place = batch.columns.index("inputs")
    return [row for row in batch.rows if row.split(b"\t", place + 1)[place].rstrip(b"\n") != b"\\N"]


def _months(batch: SpooledBatch) -> list[datetime]:
    column = batch.columns.index("predicted_at")
    months = {row.split(b"\t", column + 1)[column][: len("2025-01")].decode() for row in batch.rows}
    return [datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC) for month in sorted(months)]


def _columns_of(windows: Sequence[Window]) -> tuple[list[Any], ...]:
    """Return the arguments of :data:`_REPLACE_WINDOWS`."""
    keys = [window.key for window in windows]
    return (
        [key.model_version_id for key in keys],
        [key.start for key in keys],
        [key.role.value for key in keys],
        [key.rollout_id for key in keys],
        [key.policy_generation for key in keys],
        [key.shipper for key in keys],
        [key.epoch for key in keys],
        [window.calls for window in windows],
        [window.errors for window in windows],
        [window_to_json(window) for window in windows],
    )


def _is_missing_partition(error: asyncpg.PostgresError) -> bool:
    # The same SQLSTATE as a failed CHECK, but without a constraint's name; the message may be in any language.
    return isinstance(error, asyncpg.CheckViolationError) and error.constraint_name is None


def _translated(error: asyncpg.PostgresError) -> UnderstudyError:
    if isinstance(error, asyncpg.InsufficientPrivilegeError):  # of the same class as missing schema objects
        return LoginNotAllowed(f"the prediction log: {error}")
    if error.sqlstate.startswith(_SCHEMA_CLASS):
        return MigrationNeeded(f"the prediction log: {error}")
    return RegistryUnavailable(f"the prediction log: {error.sqlstate} {error}")


def _reason(error: asyncpg.PostgresError) -> str:
    return f"{error.sqlstate} {error}"
