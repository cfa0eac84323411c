"""``LakeLedger`` in Postgres: ``LakeFile``, and the places of spools in ``SpoolOffset``.

A file is named before it is written; that it is stored, and that its spool has come to its end, is one transaction. So
a file whose spool has gone past it without it can never be said to be stored any more, and is left over.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.core.prediction_log.lake import LAYOUT, NamedFile, Place, Stretch
from understudy.errors import RegistryUnavailable
from understudy.ports.prediction_log.lake import LateRow, VersionName

_READ_PLACE = """
    WITH seen AS (
        UPDATE SpoolOffset SET updated_at = now() WHERE spool_id = $1 AND updated_at < now() - INTERVAL '1 day')
    SELECT segment, byte_offset FROM SpoolOffset WHERE spool_id = $1
"""
_NAMES = "SELECT id, model_name, version FROM modelversion WHERE id = ANY ($1::bigint[])"
_NAME = """
    INSERT INTO lakefile (key, spool_id, segment, byte_offset, layout)
    SELECT key, $2, $3, $4, $5 FROM unnest($1::text[]) AS key
    ON CONFLICT (key) DO UPDATE SET named_at = now() WHERE lakefile.stored_at IS NULL
"""
# Waits for another shipper's transaction on the same row, and then sees what it wrote.
_MOVE = """
    UPDATE spooloffset SET segment = $4, byte_offset = $5, updated_at = now()
    WHERE spool_id = $1 AND segment = $2 AND byte_offset = $3
"""
_BEGIN = "INSERT INTO spooloffset (spool_id, segment, byte_offset) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_STORED = """
    UPDATE lakefile SET stored_at = now(), row_count = given.row_count, byte_count = given.byte_count
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS given (key, row_count, byte_count)
    WHERE lakefile.key = given.key AND stored_at IS NULL
"""

_ERASED_UNTIL = "SELECT extract(epoch FROM understudy_erased_until())::float8"
_LATE_NAMES = """
    SELECT came.place, late.erased_name, late.erased_prediction
    FROM (SELECT model, array_agg(entity ORDER BY place) AS entities, array_agg(at ORDER BY place) AS moments,
                 array_agg(prediction ORDER BY place) AS predictions, array_agg(place ORDER BY place) AS places
          FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[]) WITH ORDINALITY
              AS given (model, entity, at, prediction, place) GROUP BY model) AS of_model,
         understudy_late_names(model, entities, moments, predictions) AS late,
         LATERAL (SELECT places[late.place] AS place) AS came
"""
_LATE_AT_ONCE = 10_000


class PostgresLakeLedger(SessionPerCall):
    """Implements ``ports.LakeLedger``, under the role ``understudy_proxy``."""

    async def committed(self, spool_id: str) -> Place:
        async with self._connection() as connection:
            found = await connection.fetchrow(_READ_PLACE, spool_id)
        return (0, 0) if found is None else (found["segment"], found["byte_offset"])

    async def names_of(self, version_ids: Sequence[int]) -> Mapping[int, VersionName]:
        async with self._connection() as connection:
            found = await connection.fetch(_NAMES, list(version_ids))
        return {row["id"]: VersionName(row["model_name"], row["version"]) for row in found}

    async def name(self, stretch: Stretch, keys: Sequence[str]) -> float | None:
        async with self._connection() as connection:
            await connection.execute(_NAME, list(keys), stretch.spool_id, *stretch.start, LAYOUT)
            # A statement of its own: it sees what was committed after the names were.
            until: float | None = await connection.fetchval(_ERASED_UNTIL)
        return until

    async def late_names(self, rows: Sequence[LateRow]) -> Mapping[int, tuple[str, str]]:
        found: dict[int, tuple[str, str]] = {}
        async with self._connection() as connection:
            for first in range(0, len(rows), _LATE_AT_ONCE):
                some = rows[first : first + _LATE_AT_ONCE]
                columns = [list(column) for column in zip(*some, strict=True)]
                columns[2] = [datetime.fromtimestamp(at, UTC) for at in columns[2]]
                for row in await connection.fetch(_LATE_NAMES, *columns):
                    found[first + row["place"] - 1] = (row["erased_name"], row["erased_prediction"])
        return found

    async def stored(self, stretch: Stretch, files: Sequence[NamedFile]) -> bool:
        async with self._connection() as connection, connection.transaction():
            moved = await connection.execute(_MOVE, stretch.spool_id, *stretch.start, *stretch.end)
            if moved != "UPDATE 1" and (
                stretch.start != (0, 0)
                or await connection.execute(_BEGIN, stretch.spool_id, *stretch.end) != "INSERT 0 1"
            ):
                return False
            columns = [list(column) for column in zip(*files, strict=True)] or [[], [], []]
            stored = await connection.execute(_STORED, *columns)
            if stored != f"UPDATE {len(files)}":
                raise RegistryUnavailable(
                    "the lake: a file of these rows is not in LakeFile any more; it is named again"
                )
        return True

    def _connection(self) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session("the lake's files cannot be written down", "understudy-lake-shipper")
