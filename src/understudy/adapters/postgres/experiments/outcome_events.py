"""``OutcomeEvents`` in Postgres, read through a cursor: memory does not depend on how many there are."""

from collections.abc import AsyncGenerator, Sequence

from understudy.adapters.postgres.connections.long_reads import LongReads
from understudy.ports.experiments.experiment_log import ToldOutcome

BATCH_EVENTS = 20_000
_TOLD = """
    SELECT event_id, entity_id, prediction_id::text AS prediction_id,
           (extract(epoch FROM occurred_at) * 1000000)::bigint AS at_us, value
    FROM outcomeevent
    WHERE model_name = $1 AND name = $2 AND occurred_at >= to_timestamp($3) AND occurred_at < to_timestamp($4)
"""


class PostgresOutcomeEvents(LongReads):
    """Implements ``ports.OutcomeEvents``."""

    async def told(
        self, model_name: str, metric: str, since: float, until: float
    ) -> AsyncGenerator[Sequence[ToldOutcome]]:
        async with self._read("outcomes", "understudy-experiments") as connection:
            cursor = await connection.cursor(_TOLD, model_name, metric, since, until)
            while rows := await cursor.fetch(BATCH_EVENTS):
                yield [ToldOutcome(*row) for row in rows]
