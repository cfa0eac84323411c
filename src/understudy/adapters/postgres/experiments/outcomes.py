"""``OutcomeEvent`` in Postgres."""

from collections.abc import Collection, Sequence

import asyncpg

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.ports.experiments.outcome_store import OutcomeResult

# In the order of the ids: otherwise two batches with the same events could deadlock on each other's keys.
_ADD = """
    INSERT INTO outcomeevent (event_id, model_name, entity_id, prediction_id, name, value, occurred_at)
    SELECT event_id, model_name, entity_id, prediction_id, name, value, to_timestamp(occurred_at)
    FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::float8[], $7::float8[])
        AS given (event_id, model_name, entity_id, prediction_id, name, value, occurred_at)
    ORDER BY event_id, model_name
    ON CONFLICT DO NOTHING
    RETURNING model_name, coalesce(sent_as, event_id) AS event_id
"""
# Two searches, each by its own index: where another model had the id first, the sender's is in sent_as (ADR 70).
_STORED = """
    SELECT given.model_name, given.event_id FROM unnest($1::text[], $2::text[]) AS given (event_id, model_name)
    WHERE EXISTS (SELECT FROM outcomeevent AS one
                  WHERE one.event_id = given.event_id AND one.model_name = given.model_name)
       OR EXISTS (SELECT FROM outcomeevent AS one
                  WHERE one.model_name = given.model_name AND one.sent_as = given.event_id)
"""

_UNKNOWN = """
    SELECT name FROM unnest($1::text[]) AS given (name)
    WHERE NOT EXISTS (SELECT FROM modelversion WHERE model_name = given.name)
"""

_NEW_METRICS = """
    SELECT model_name, name FROM unnest($1::text[], $2::text[]) AS given (model_name, name)
    WHERE NOT EXISTS (SELECT FROM outcomeevent AS one
                      WHERE one.model_name = given.model_name AND one.name = given.name)
"""

_Key = tuple[str, str]
"""A model and the sender's id."""


class PostgresOutcomeStore:
    """Writes over one connection of its own, opened at the first call and again after each failure.

    Args:
        database_url: With a role that may insert into ``OutcomeEvent``, select its model and ids, and read
            ``ModelVersion``.
        timeout_seconds: Longest time of one call, waiting for its turn and connecting included.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float) -> None:
        self._kept = KeptConnection(
            database_url, "outcome events cannot be stored", timeout_seconds, "understudy-outcomes"
        )

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        if not outcomes:
            return []
        async with self._kept.use() as connection, connection.transaction():
            new = await _add(connection, outcomes)
            if lost := await _lost(connection, [outcome for outcome in outcomes if _key(outcome) not in new]):
                await _add(connection, lost)
                # Also what is not stored for its entity was erased: "known" would tell the sender that it was.
                new |= {_key(outcome) for outcome in lost}
        return _results([_key(outcome) for outcome in outcomes], new)

    async def unknown_models(self, names: Collection[str]) -> frozenset[str]:
        async with self._kept.use() as connection:
            return frozenset(row["name"] for row in await connection.fetch(_UNKNOWN, list(names)))

    async def new_metrics(self, metrics: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        if not metrics:
            return frozenset()
        async with self._kept.use() as connection:
            rows = await connection.fetch(_NEW_METRICS, *map(list, zip(*metrics, strict=True)))
        return frozenset((row["model_name"], row["name"]) for row in rows)

    async def close(self) -> None:
        """Drop the connection."""
        self._kept.drop()


def _key(outcome: OutcomeEvent) -> _Key:
    return outcome.model_name, outcome.event_id


async def _add(connection: asyncpg.Connection, outcomes: Sequence[OutcomeEvent]) -> set[_Key]:
    """Return which are new."""
    rows = await connection.fetch(_ADD, *zip(*outcomes, strict=True))
    return {(row["model_name"], row["event_id"]) for row in rows}


async def _lost(connection: asyncpg.Connection, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeEvent]:
    """Return which are not stored although they are not known.

    Another model's came with the same id meanwhile: the statement that adds them did not see it, and met it at its
    commit. The next one sees it. Or the entity was erased, and what happened before that is not stored (ADR 79).
    """
    if not outcomes:
        return ()
    rows = await connection.fetch(_STORED, *list(zip(*outcomes, strict=True))[:2])
    stored = {(row["model_name"], row["event_id"]) for row in rows}
    return [outcome for outcome in outcomes if _key(outcome) not in stored]


def _results(keys: Sequence[_Key], new: set[_Key]) -> list[OutcomeResult]:
    """Return each event's result; of several with one id in a batch the first is the new one, as in the twin."""
    results = []
    for key in keys:
        results.append(OutcomeResult.NEW if key in new else OutcomeResult.KNOWN)
        new.discard(key)
    return results
