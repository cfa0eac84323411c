"""``OutcomeEvent`` in Postgres."""

from collections.abc import Sequence

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.ports.outcome_store import OutcomeResult

# In the order of the ids: otherwise two batches with the same events could deadlock on each other's keys.
_ADD = """
    INSERT INTO outcomeevent (event_id, model_name, entity_id, prediction_id, name, value, occurred_at)
    SELECT event_id, model_name, entity_id, prediction_id, name, value, to_timestamp(occurred_at)
    FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::float8[], $7::float8[])
        AS given (event_id, model_name, entity_id, prediction_id, name, value, occurred_at)
    ORDER BY event_id
    ON CONFLICT (event_id) DO NOTHING
    RETURNING event_id
"""


class PostgresOutcomeStore:
    """Writes over one connection of its own, opened at the first call and again after each failure.

    Args:
        database_url: With a role that may select from and insert into ``OutcomeEvent``.
        timeout_seconds: Longest time of one call, waiting for its turn and connecting included.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._kept = KeptConnection(
            database_url, "outcome events cannot be stored", timeout_seconds, "understudy-outcomes"
        )

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        if not outcomes:
            return []
        columns = list(zip(*outcomes, strict=True))
        async with self._kept.use() as connection:
            rows = await connection.fetch(_ADD, *columns)
        return _results([outcome.event_id for outcome in outcomes], {row["event_id"] for row in rows})

    async def close(self) -> None:
        """Drop the connection."""
        self._kept.drop()


def _results(event_ids: Sequence[str], stored: set[str]) -> list[OutcomeResult]:
    """Return each event's result; of several with one id in a batch the first is the new one, as in the twin."""
    results = []
    for event_id in event_ids:
        results.append(OutcomeResult.NEW if event_id in stored else OutcomeResult.KNOWN)
        stored.discard(event_id)
    return results
