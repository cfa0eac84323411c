"""Acts of people on rollouts that changed no policy, which the audit of policies does not have."""

from collections.abc import Sequence

import asyncpg

from understudy.adapters.postgres.connections.connection import named_by_callers
from understudy.ports.rollout.rollout_store import MONITOR, RolloutAct, RolloutActFilter

# What changed a policy has a row of PolicyAudit from the same transaction, and so with the same time.
_ACTS = """
    SELECT event.id, event.rollout_id, event.at, event.reason, event.actor
    FROM rolloutevent AS event JOIN rollout ON rollout.id = event.rollout_id
    WHERE rollout.model_name = $1 AND event.actor <> $3
        AND ($4::text IS NULL OR event.actor = $4) AND ($5::timestamptz IS NULL OR event.at >= $5)
        AND ($6::bigint IS NULL OR event.id < $6)
        AND NOT EXISTS (
            SELECT FROM policyaudit AS change
            WHERE change.changed_at = event.at AND change.model_name = rollout.model_name)
    ORDER BY event.id DESC LIMIT $2
"""


async def read_acts(
    connection: asyncpg.Connection, model_name: str, limit: int, only: RolloutActFilter
) -> Sequence[RolloutAct]:
    """Return a model's acts that are like a filter says, newest first."""
    with named_by_callers():
        rows = await connection.fetch(_ACTS, model_name, limit, MONITOR, only.actor, only.since, only.before_id)
    return [RolloutAct(**row) for row in rows]
