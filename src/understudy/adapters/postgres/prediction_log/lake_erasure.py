"""``LakeErasureLedger`` in Postgres: the functions of migration 0040, which write with their owner's rights."""

from collections.abc import Sequence

from understudy.adapters.postgres.prediction_log.entity_erasure import PostgresErasureLedger
from understudy.ports.prediction_log.entity_erasure import Erasure
from understudy.ports.prediction_log.lake_erasure import UnfinishedFile
from understudy.ports.prediction_log.lake_rewrites import LakeRewrite

_MOMENT = "SELECT extract(epoch FROM clock_timestamp())::float8 AS moment"
# A spool that has stored a file from the same place on, or from a later one, stores this one no more.
_UNFINISHED = """
    WITH named AS MATERIALIZED (
        SELECT * FROM lakefile WHERE committed_at IS NULL AND (named_at < to_timestamp($1) OR key = ANY ($2::text[]))),
    last AS MATERIALIZED (
        SELECT DISTINCT ON (spool_id) spool_id, segment, byte_offset FROM lakefile
        WHERE stored_at IS NOT NULL AND spool_id = ANY (ARRAY(SELECT spool_id FROM named WHERE stored_at IS NULL))
        ORDER BY spool_id, segment DESC, byte_offset DESC)
    SELECT key, stored_at IS NOT NULL AS is_stored, extract(epoch FROM now() - named_at)::float8 AS named_seconds,
           stored_at IS NULL AND coalesce(
               (last.segment, last.byte_offset) >= (named.segment, named.byte_offset), false) AS is_left,
           named_at >= to_timestamp($1) AS has_seen
    FROM named LEFT JOIN last USING (spool_id) ORDER BY key
"""
_IS_MERGING = "SELECT 1 FROM lakerewrite WHERE kind <> 'erase' AND ended_at IS NULL LIMIT 1"
_OPEN = """
    SELECT number, kind, old_paths, new_keys, sequence FROM lakerewrite
    WHERE erasure_id = $1 AND ended_at IS NULL ORDER BY number
"""
_ENDED = """
    SELECT number, kind, old_paths, new_keys, sequence FROM lakerewrite
    WHERE ended_at IS NOT NULL AND cardinality(old_paths) + cardinality(new_keys) > 0 ORDER BY number
"""


class PostgresLakeErasureLedger:
    """Works over the connection of an erasure.

    Args:
        ledger: Of the erasure.
    """

    def __init__(self, ledger: PostgresErasureLedger) -> None:
        self._ledger = ledger

    async def moment(self) -> float:
        (found,) = await self._ledger.rows(_MOMENT)
        moment: float = found["moment"]
        return moment

    async def unfinished(self, since: float, known: Sequence[str]) -> Sequence[UnfinishedFile]:
        return [UnfinishedFile(*row) for row in await self._ledger.rows(_UNFINISHED, since, list(known))]

    async def is_merging(self) -> bool:
        return bool(await self._ledger.rows(_IS_MERGING))

    async def open_rewrites(self, erasure: Erasure) -> Sequence[LakeRewrite]:
        return [LakeRewrite(*row) for row in await self._ledger.rows(_OPEN, erasure.id)]

    async def ended_rewrites(self) -> Sequence[LakeRewrite]:
        return [LakeRewrite(*row) for row in await self._ledger.rows(_ENDED)]

    async def begin(self, erasure: Erasure, old_paths: Sequence[str]) -> int:
        statement = "SELECT understudy_begin_lake_erasure($1, $2, $3)"
        number: int = await self._ledger.step(statement, erasure, list(old_paths))
        return number

    async def name(self, erasure: Erasure, number: int, new_keys: Sequence[str], rows: int) -> None:
        statement = "SELECT understudy_name_lake_files($1, $2, $3, $4, $5)"
        await self._ledger.step(statement, erasure, number, list(new_keys), rows)

    async def end(self, erasure: Erasure, number: int, state: int, *, is_in_table: bool) -> None:
        statement = "SELECT understudy_end_lake_erasure($1, $2, $3, $4, $5)"
        await self._ledger.step(statement, erasure, number, state, is_in_table)
