"""``LakeRewrites`` in Postgres: which files of the lake's table take the place of which, in ``LakeRewrite``."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.lake_rewrites import Kind, LakeRewrite

# predictionlog/data/predicted_at_hour=2026-11-26-17/model=visits/…; an hour is over once its last rows are stored.
_MOMENT = "SELECT extract(epoch FROM clock_timestamp())::float8"
_CROWDED_HOUR = """
    SELECT right(split_part(key, '/', 3), 13) AS hour FROM lakefile
    WHERE committed_at IS NOT NULL AND right(split_part(key, '/', 3), 13) <> ALL ($2::text[])
    GROUP BY hour, split_part(key, '/', 4)
    HAVING count(*) > 1 AND right(split_part(min(key), '/', 3), 13)
                            < to_char(now() AT TIME ZONE 'UTC' - $1::float8 * INTERVAL '1 second', 'YYYY-MM-DD-HH24')
    ORDER BY count(*) DESC LIMIT 1
"""
_LEAVE_HOUR = """
    DELETE FROM lakefile WHERE committed_at IS NOT NULL
    AND starts_with(key, 'predictionlog/data/predicted_at_hour=' || $1::text || '/')
"""
# An erasure that begins takes the same lock, and then waits for what it finds here.
_ALONE = "LOCK TABLE lakerewrite IN SHARE ROW EXCLUSIVE MODE"
_BEGIN = """
    INSERT INTO lakerewrite (kind, old_paths) SELECT $1, $2::text[]
    WHERE NOT EXISTS (SELECT FROM lakerewrite
                      WHERE kind = 'erase' AND ended_at IS NULL AND begun_at > now() - INTERVAL '1 hour')
    RETURNING number
"""
_NAME = "UPDATE lakerewrite SET new_keys = $2 WHERE number = $1 AND ended_at IS NULL"
_END = """
    UPDATE lakerewrite SET ended_at = now(), sequence = $2, old_paths = $3, new_keys = $4
    WHERE number = $1 AND ended_at IS NULL
"""
_FORGET_MERGED = "DELETE FROM lakefile WHERE key = ANY ($1::text[]) AND committed_at IS NOT NULL"
_COLUMNS = "number, kind, old_paths, new_keys, sequence"
# A command that erases goes on with what it left; after an hour the monitor ends that.
_OPEN = f"""
    SELECT {_COLUMNS} FROM lakerewrite
    WHERE ended_at IS NULL AND (kind <> 'erase' OR begun_at < now() - INTERVAL '1 hour') ORDER BY number
"""  # noqa: S608 - constant
_ENDED = f"""
    SELECT {_COLUMNS} FROM lakerewrite
    WHERE ended_at < now() - $1::float8 * INTERVAL '1 second' ORDER BY number LIMIT $2
"""  # noqa: S608 - constant
_FORGET = "DELETE FROM lakerewrite WHERE number = ANY ($1::bigint[]) AND ended_at IS NOT NULL"


class PostgresLakeRewrites(SessionPerCall):
    """Implements ``ports.LakeRewrites``, under the role ``understudy_monitor``."""

    async def moment(self) -> float:
        async with self._connection() as connection:
            moment: float = await connection.fetchval(_MOMENT)
        return moment

    async def crowded_hour(self, over_seconds: float, skipped: Sequence[str]) -> str | None:
        async with self._connection() as connection:
            hour: str | None = await connection.fetchval(_CROWDED_HOUR, over_seconds, list(skipped))
        return hour

    async def leave_hour(self, hour: str, *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_LEAVE_HOUR, hour)

    async def begin(self, kind: Kind, old_paths: Sequence[str], *, epoch: Epoch) -> int | None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_ALONE)
            number: int | None = await connection.fetchval(_BEGIN, kind, list(old_paths))
        return number

    async def name(self, number: int, new_keys: Sequence[str], *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_NAME, number, list(new_keys))

    async def end(
        self,
        number: int,
        sequence: int,
        old_paths: Sequence[str],
        new_keys: Sequence[str],
        merged_keys: Sequence[str],
        *,
        epoch: Epoch,
    ) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_END, number, sequence, list(old_paths), list(new_keys))
            await connection.execute(_FORGET_MERGED, list(merged_keys))

    async def open_rewrites(self) -> Sequence[LakeRewrite]:
        async with self._connection() as connection:
            return [LakeRewrite(*row) for row in await connection.fetch(_OPEN)]

    async def ended_rewrites(self, older_seconds: float, at_most: int) -> Sequence[LakeRewrite]:
        async with self._connection() as connection:
            return [LakeRewrite(*row) for row in await connection.fetch(_ENDED, older_seconds, at_most)]

    async def forget_rewrites(self, numbers: Sequence[int], *, epoch: Epoch) -> None:
        async with self._connection() as connection, fenced(connection, epoch):
            await connection.execute(_FORGET, list(numbers))

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("rewrites of the lake's files cannot be written down", "understudy-lake")
