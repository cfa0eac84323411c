"""``RetentionStore`` in Postgres: one piece of a table a transaction, fenced by the leader's epoch.

In each statement ``$1`` is the age in days and ``$2`` the most rows. Rows are chosen once, in an array: a subquery
of ``IN`` may run again for each row, which voids its limit. Locked rows are skipped until the next time: the session
that changes one makes it young, and is not waited for.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall
from understudy.adapters.postgres.monitoring.lease import fenced
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.retention_store import GrowingTable

MAX_DEAD_LETTERS = 100_000

_OLD = "now() - $1::float8 * INTERVAL '1 day'"
# The newest row of an incident, changes aside, shows whether it is open (see outbox.py). So it is deleted last, and
# only if it resolved the incident; while that is open, undelivered rows stay.
_ALERTS = f"""
    DELETE FROM alertoutbox WHERE id = ANY (ARRAY(
        SELECT row.id FROM alertoutbox AS row
        LEFT JOIN LATERAL (
            SELECT id, action FROM alertoutbox AS other
            WHERE row.action <> 'change' AND other.dedup_key = row.dedup_key AND other.action <> 'change'
            ORDER BY other.id DESC LIMIT 1
        ) AS newest ON TRUE
        WHERE coalesce(row.delivered_at, row.created_at) < {_OLD} AND CASE
            WHEN row.action = 'change' THEN TRUE
            WHEN newest.action <> 'resolve'
                THEN newest.id <> row.id AND (row.delivered_at IS NOT NULL OR row.next_attempt_at = 'infinity')
            WHEN newest.id <> row.id THEN TRUE
            ELSE NOT EXISTS (
                SELECT FROM alertoutbox AS earlier
                WHERE earlier.dedup_key = row.dedup_key AND earlier.id < row.id AND earlier.action <> 'change') END
        ORDER BY row.id LIMIT $2 FOR UPDATE OF row SKIP LOCKED))
"""  # noqa: S608 - constants
_OUTCOMES = f"""
    DELETE FROM outcomeevent WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM outcomeevent WHERE received_at < {_OLD} ORDER BY received_at LIMIT $2))
"""  # noqa: S608 - constants
_LAST_VERDICT = """
    (SELECT max(id) FROM rolloutevent AS judged WHERE judged.rollout_id = done.id AND judged.verdict IS NOT NULL)
"""
_EVENTS = f"""
    DELETE FROM rolloutevent WHERE id = ANY (ARRAY(
        SELECT event.id FROM rollout AS done JOIN rolloutevent AS event ON event.rollout_id = done.id
        WHERE done.finished_at < {_OLD} AND event.id IS DISTINCT FROM {_LAST_VERDICT} LIMIT $2))
"""  # noqa: S608 - constants
_INPUTS_OF_EVENTS = f"""
    UPDATE rolloutevent SET inputs = '{{}}' WHERE id = ANY (ARRAY(
        SELECT event.id FROM rollout AS done JOIN rolloutevent AS event ON event.rollout_id = done.id
        WHERE done.finished_at < {_OLD} AND event.inputs <> '{{}}' AND event.id = {_LAST_VERDICT} LIMIT $2))
"""  # noqa: S608 - constants
_ROLLOUTS = f"""
    DELETE FROM rollout WHERE id = ANY (ARRAY(
        SELECT id FROM rollout AS done WHERE done.finished_at < {_OLD}
          AND EXISTS (SELECT FROM rollout AS later WHERE later.model_name = done.model_name AND later.id > done.id)
          AND NOT EXISTS (SELECT FROM servingpolicy WHERE rollout_id = done.id)
        ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))
"""  # noqa: S608 - constants
# Reports look up the policy at a point in time, which is in the newest row before it. Asked of each row by itself, this
# was a comparison with every other row of its model in some plans.
_AUDIT = f"""
    DELETE FROM policyaudit WHERE id = ANY (ARRAY(
        WITH newest AS (
            SELECT model_name, max(id) AS id FROM policyaudit WHERE changed_at < {_OLD} GROUP BY model_name)
        SELECT row.id FROM policyaudit AS row JOIN newest ON newest.model_name = row.model_name
        WHERE row.changed_at < {_OLD} AND row.id < newest.id
          AND NOT EXISTS (
              SELECT FROM rollout WHERE rollout.model_name = row.model_name AND rollout.started_at <= row.changed_at
                AND phase IN ('PROGRESSING', 'WAITING', 'PROMOTING'))
        ORDER BY row.changed_at LIMIT $2))
"""  # noqa: S608 - constants
_REGISTRY_AUDIT = f"""
    DELETE FROM registryaudit WHERE id = ANY (ARRAY(
        SELECT id FROM registryaudit WHERE changed_at < {_OLD} ORDER BY changed_at LIMIT $2))
"""  # noqa: S608 - constants
_SUBSCRIPTION_AUDIT = f"""
    DELETE FROM subscriptionaudit WHERE id = ANY (ARRAY(
        SELECT id FROM subscriptionaudit WHERE changed_at < {_OLD} ORDER BY changed_at LIMIT $2))
"""  # noqa: S608 - constants
_ERASURES = f"""
    DELETE FROM entityerasure WHERE id = ANY (ARRAY(
        SELECT id FROM entityerasure WHERE finished_at < {_OLD} ORDER BY id LIMIT $2))
"""  # noqa: S608 - constants
# Oldest first, so that no more rows are read than may be deleted: they are as long as rows of the log.
_DEAD_LETTERS = f"""
    DELETE FROM predictiondeadletter WHERE id = ANY (ARRAY(
        SELECT id FROM (SELECT id, at FROM predictiondeadletter ORDER BY id LIMIT $2) AS oldest
        WHERE at < {_OLD}
           OR id <= (SELECT id FROM predictiondeadletter ORDER BY id DESC OFFSET {MAX_DEAD_LETTERS} LIMIT 1)))
"""  # noqa: S608 - constants
_SPOOL_OFFSETS = f"""
    DELETE FROM spooloffset WHERE spool_id = ANY (ARRAY(
        SELECT spool_id FROM spooloffset WHERE updated_at < {_OLD} LIMIT $2 FOR UPDATE SKIP LOCKED))
"""  # noqa: S608 - constants
_POLICY_CHANGES = f"""
    DELETE FROM policychange WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM policychange WHERE source LIKE 'version:%' AND changed_at < {_OLD}
        LIMIT $2 FOR UPDATE SKIP LOCKED))
"""  # noqa: S608 - constants
_WARM_UPS = f"""
    DELETE FROM warmuprequest WHERE id = ANY (ARRAY(
        SELECT id FROM warmuprequest WHERE deadline < {_OLD} ORDER BY deadline LIMIT $2))
"""  # noqa: S608 - constants
# Neither is touched again, so no row is locked.
_NOTIFICATIONS = f"""
    DELETE FROM notification WHERE id = ANY (ARRAY(
        SELECT id FROM notification
        WHERE created_at < {_OLD} AND (delivered_at IS NOT NULL OR next_attempt_at = 'infinity')
        ORDER BY created_at LIMIT $2))
"""  # noqa: S608 - constants
STATEMENTS: Mapping[GrowingTable, Sequence[str]] = {
    GrowingTable.ALERTS: (_ALERTS,),
    GrowingTable.OUTCOMES: (_OUTCOMES,),
    GrowingTable.ROLLOUT_EVENTS: (_EVENTS, _INPUTS_OF_EVENTS),
    GrowingTable.ROLLOUTS: (_ROLLOUTS,),
    GrowingTable.AUDIT: (_AUDIT,),
    GrowingTable.REGISTRY_AUDIT: (_REGISTRY_AUDIT, _SUBSCRIPTION_AUDIT),
    GrowingTable.ERASURES: (_ERASURES,),
    GrowingTable.DEAD_LETTERS: (_DEAD_LETTERS,),
    GrowingTable.SPOOL_OFFSETS: (_SPOOL_OFFSETS,),
    GrowingTable.POLICY_CHANGES: (_POLICY_CHANGES,),
    GrowingTable.WARM_UPS: (_WARM_UPS,),
    GrowingTable.NOTIFICATIONS: (_NOTIFICATIONS,),
}


class PostgresRetentionStore(SessionPerCall):
    """Implements ``ports.RetentionStore``; the role may delete from the tables that ``GrowingTable`` names."""

    async def forget(self, table: GrowingTable, days: float, at_most: int, *, epoch: Epoch) -> int:
        gone = 0
        async with self._connection(table) as connection, fenced(connection, epoch):
            for statement in STATEMENTS[table]:
                done: str = await connection.execute(statement, days, at_most - gone)
                gone += int(done.rpartition(" ")[2])
        return gone

    def _connection(self, table: GrowingTable) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._session(f"old rows of {table} cannot be deleted", "understudy-retention")
