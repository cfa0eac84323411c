"""``LakeCommits`` in Postgres: which commit to the lake's table took which file of ``LakeFile``."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.lake import LakeCommit, WaitingFiles

_OPEN = """
    SELECT commit_number, array_agg(key ORDER BY key) AS keys, sum(row_count)::bigint AS row_count FROM lakefile
    WHERE commit_number IS NOT NULL AND committed_at IS NULL GROUP BY commit_number ORDER BY commit_number LIMIT 1
"""
# The number is above that of every commit that the table or this list knows.
_BEGIN_COMMIT = """
    WITH taken AS (
        SELECT key FROM lakefile WHERE stored_at IS NOT NULL AND committed_at IS NULL AND layout <= $2
        ORDER BY stored_at, key LIMIT $3)
    UPDATE lakefile SET commit_number = (SELECT greatest($1, coalesce(max(commit_number), 0)) + 1 FROM lakefile)
    FROM taken WHERE lakefile.key = taken.key
"""
_END_COMMIT = "UPDATE lakefile SET committed_at = now() WHERE commit_number = $1 AND committed_at IS NULL"
_WAITING = """
    SELECT count(*) AS files, coalesce(extract(epoch FROM now() - min(stored_at)), 0)::float8 AS oldest_seconds
    FROM lakefile WHERE stored_at IS NOT NULL AND committed_at IS NULL
"""
_LEFT_OVER = """
    SELECT key FROM lakefile LEFT JOIN spooloffset USING (spool_id)
    WHERE stored_at IS NULL AND commit_number IS NULL AND committed_at IS NULL
      AND named_at < now() - $1::float8 * INTERVAL '1 second'
      AND ((spooloffset.segment, spooloffset.byte_offset) > (lakefile.segment, lakefile.byte_offset)
           OR named_at < now() - INTERVAL '1 year')
    ORDER BY key LIMIT $2
"""
_FORGET = "DELETE FROM lakefile WHERE key = ANY ($1::text[]) AND stored_at IS NULL AND commit_number IS NULL"
_FORGET_COMMITTED = """
    DELETE FROM lakefile WHERE key = ANY (ARRAY(
        SELECT key FROM lakefile WHERE committed_at < now() - $1::float8 * INTERVAL '1 second'
        ORDER BY committed_at LIMIT $2))
"""


class PostgresLakeCommits(SessionPerCall):
    """Implements ``ports.LakeCommits``, under the role ``understudy_monitor``."""

    async def open_commit(self) -> LakeCommit | None:
        async with self._connection() as connection:
            return await _open_commit(connection)

    async def begin(self, above: int, layout: int, at_most: int, *, epoch: Epoch) -> LakeCommit | None:
        async with self._connection() as connection, fenced(connection, epoch):
            if await _open_commit(connection) is not None:
                return None
            await connection.execute(_BEGIN_COMMIT, above, layout, at_most)
            return await _open_commit(connection)

    async def end(self, number: int, *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_END_COMMIT, number)

    async def waiting(self) -> WaitingFiles:
        async with self._connection() as connection:
            found = await connection.fetchrow(_WAITING)
        assert found is not None, "counts are one row"
        return WaitingFiles(found["files"], found["oldest_seconds"])

    async def left_over(self, seconds: float, at_most: int) -> Sequence[str]:
        async with self._connection() as connection:
            return [row["key"] for row in await connection.fetch(_LEFT_OVER, seconds, at_most)]

    async def forget(self, keys: Sequence[str], committed_seconds: float, at_most: int, *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_FORGET, list(keys))
            await connection.execute(_FORGET_COMMITTED, committed_seconds, at_most)

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("the lake's commits cannot be written down", "understudy-lake")


async def _open_commit(connection: asyncpg.Connection) -> LakeCommit | None:
    found = await connection.fetchrow(_OPEN)
    return None if found is None else LakeCommit(found["commit_number"], found["keys"], found["row_count"])
