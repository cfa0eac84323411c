"""``AlertOutbox`` in Postgres.

A row is written once, in the transaction of the change that it reports (a transactional outbox); it names no channel.
The monitor that delivers makes one row for each channel, so that a receiver that is down delays no other one.
"""

from collections.abc import Sequence

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.core.alerts.alerts import AlertEvent, event_from_json, event_to_json
from understudy.ports.monitoring.alerts import QueuedAlert

TAKEN_SECONDS = 60.0
"""How long a taken event is reserved for its sender: longer than a send may take."""
_ERROR_CHARACTERS = 1_000

_ADD = """
    INSERT INTO AlertOutbox (dedup_key, action, severity, model_name, payload)
    SELECT $1::text, $2::text, $3::text, $4::text, $5::text::jsonb
    WHERE $2::text <> 'resolve' OR coalesce((
        SELECT told.action FROM AlertOutbox told WHERE told.dedup_key = $1::text AND told.action <> 'change'
        ORDER BY told.id DESC LIMIT 1), 'resolve') <> 'resolve'
"""
# In the order of their ids, so that the copies are in the same order for each channel. A payload that is no object
# comes from another program: it gets a channel too, so that it is reported as unreadable and does not wait for ever.
_ADDRESS = """
    WITH first AS (
        UPDATE AlertOutbox
        SET payload = jsonb_build_object('channel', $1::text) || CASE jsonb_typeof(payload)
            WHEN 'object' THEN payload ELSE jsonb_build_object('unreadable', payload) END
        WHERE delivered_at IS NULL AND next_attempt_at < 'infinity'
          AND NOT (jsonb_typeof(payload) = 'object' AND payload ? 'channel')
        RETURNING *)
    INSERT INTO AlertOutbox (dedup_key, action, severity, model_name, payload, created_at, next_attempt_at)
    SELECT dedup_key, action, severity, model_name, payload || jsonb_build_object('channel', other), created_at,
           next_attempt_at
    FROM first, unnest($2::text[]) AS other ORDER BY first.id
"""
_NO_CHANNEL = """
    UPDATE AlertOutbox SET next_attempt_at = 'infinity', last_error = 'no channel is configured'
    WHERE delivered_at IS NULL AND next_attempt_at < 'infinity'
"""
_TAKE = """
    WITH head AS (
        SELECT id FROM AlertOutbox AS row
        WHERE delivered_at IS NULL AND next_attempt_at <= to_timestamp($1) AND payload ->> 'channel' = ANY ($2::text[])
          AND NOT EXISTS (
              SELECT FROM AlertOutbox AS earlier
              WHERE earlier.delivered_at IS NULL AND earlier.next_attempt_at < 'infinity' AND earlier.id < row.id
                AND earlier.dedup_key = row.dedup_key
                AND earlier.payload ->> 'channel' = row.payload ->> 'channel')
        ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED)
    UPDATE AlertOutbox AS row SET attempts = attempts + 1, next_attempt_at = to_timestamp($1 + $4)
    FROM head WHERE row.id = head.id
    RETURNING row.id, row.payload, row.attempts
"""
_DELIVERED = "UPDATE AlertOutbox SET delivered_at = now(), last_error = NULL WHERE id = $1 AND delivered_at IS NULL"
_FAILED = """
    UPDATE AlertOutbox
    SET last_error = $2, next_attempt_at = CASE WHEN $3::float8 IS NULL THEN 'infinity' ELSE to_timestamp($3) END
    WHERE id = $1 AND delivered_at IS NULL
"""


async def add_alert(connection: asyncpg.Connection, event: AlertEvent) -> None:
    """Keep an event, in the open transaction of ``connection`` if it has one.

    An event that resolves an incident without an open alert is dropped.
    """
    document = orjson.dumps(event_to_json(event), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    await connection.execute(
        _ADD, event.dedup_key, event.action.value, event.severity.value, event.model_name, document.decode()
    )


class PostgresAlertOutbox:
    """Uses one connection of its own, opened at the first call and again after each failure.

    Args:
        database_url: With a role that may select, insert and update in ``AlertOutbox``.
        channels: Names of the channels. Without any, due events are marked as failed for good, so that the first
            channel that is ever configured does not get all old events. Events for a removed channel wait until it is
            configured again.
        timeout_seconds: Longest time of one call, waiting for its turn and connecting included.
    """

    def __init__(self, database_url: str, channels: Sequence[str], *, timeout_seconds: float = 5.0) -> None:
        self._channels = list(channels)
        self._kept = KeptConnection(database_url, "the alert outbox", timeout_seconds, "understudy-alerts")

    async def add(self, event: AlertEvent) -> None:
        async with self._kept.use() as connection:
            await add_alert(connection, event)

    async def due(self, now: float, limit: int) -> Sequence[QueuedAlert]:
        """See :class:`understudy.ports.monitoring.alerts.AlertOutbox`; an unreadable row fails for good."""
        async with self._kept.use() as connection:
            rows = await self._take(connection, now, limit)
        taken = []
        for row in sorted(rows, key=lambda row: int(row["id"])):
            try:
                payload = orjson.loads(row["payload"])
                event = event_from_json(payload)
            except (KeyError, TypeError, ValueError) as problem:
                await self.failed(row["id"], f"the payload is no event: {type(problem).__name__} {problem}", None)
                continue
            taken.append(QueuedAlert(row["id"], payload["channel"], event, row["attempts"]))
        return taken

    async def delivered(self, alert_id: int) -> None:
        async with self._kept.use() as connection:
            await connection.execute(_DELIVERED, alert_id)

    async def failed(self, alert_id: int, error: str, next_attempt_at: float | None) -> None:
        text = error.encode(errors="ignore").decode().replace("\0", "")[:_ERROR_CHARACTERS]
        async with self._kept.use() as connection:
            await connection.execute(_FAILED, alert_id, text, next_attempt_at)

    async def close(self) -> None:
        """Drop the connection."""
        self._kept.drop()

    async def _take(self, connection: asyncpg.Connection, now: float, limit: int) -> list[asyncpg.Record]:
        if not self._channels:
            await connection.execute(_NO_CHANNEL)
            return []
        first, *others = self._channels
        await connection.execute(_ADDRESS, first, others)
        return await connection.fetch(_TAKE, now, self._channels, limit, TAKEN_SECONDS)
