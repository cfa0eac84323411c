"""``NotificationOutbox`` in Postgres: the rows that triggers write in the transactions of changes (migration 0031)."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import asyncpg
import orjson

from understudy.adapters.postgres.connections.connection import KeptConnection
from understudy.core.alerts.alerts import Severity
from understudy.core.alerts.events import EventFormat, ModelEvent
from understudy.ports.monitoring.notifications import Backlog, DueSubscription, QueuedNotification

TAKEN_SECONDS = 60.0
"""How long a taken notification is reserved for its sender: longer than a send may take."""
ASK_SECONDS = 1.0
"""Longest time of what a job asks: rollouts and pages wait as long."""
PIECE_ROWS = 10_000
"""Given up by one statement, in a transaction of its own: what a slow one did not reach, the next minute's does."""
_ERROR_CHARACTERS = 1_000
_WAITS = "delivered_at IS NULL AND next_attempt_at < 'infinity'"

# The oldest of the subscription "one" that waits of each model, by the index notification_waiting: one step for each
# model, however many wait.
_HEADS = f"""
    WITH RECURSIVE head AS (
        (SELECT id, model_name, next_attempt_at FROM Notification
         WHERE subscription_id = one.id AND model_name IS NOT NULL AND {_WAITS} ORDER BY model_name, id LIMIT 1)
        UNION ALL
        SELECT following.* FROM head, LATERAL (
            SELECT id, model_name, next_attempt_at FROM Notification
            WHERE subscription_id = one.id AND model_name > head.model_name AND {_WAITS}
            ORDER BY model_name, id LIMIT 1) AS following)
    SELECT id, next_attempt_at FROM head
    UNION ALL
    (SELECT id, next_attempt_at FROM Notification
     WHERE subscription_id = one.id AND model_name IS NULL AND {_WAITS} ORDER BY id LIMIT 1)
"""  # noqa: S608 - a constant
_DUE_SUBSCRIPTIONS = f"""
    SELECT id, name, receiver, format FROM Subscription AS one
    WHERE EXISTS (SELECT FROM ({_HEADS}) AS oldest WHERE next_attempt_at <= to_timestamp($1))
    ORDER BY id
"""  # noqa: S608 - a constant
_TAKE = f"""
    WITH oldest AS (SELECT head.* FROM Subscription AS one, LATERAL ({_HEADS}) AS head WHERE one.id = $1),
    taken AS (
        SELECT row.id FROM Notification AS row
        WHERE row.id IN (SELECT id FROM oldest WHERE next_attempt_at <= to_timestamp($2) ORDER BY id LIMIT $3)
          AND row.delivered_at IS NULL AND row.next_attempt_at <= to_timestamp($2)
        FOR UPDATE OF row SKIP LOCKED)
    UPDATE Notification AS row SET attempts = attempts + 1, next_attempt_at = to_timestamp($4)
    FROM taken WHERE row.id = taken.id
    RETURNING row.id, row.event_id, row.kind, row.severity, row.model_name, row.payload, row.attempts,
              extract(epoch FROM row.created_at)::float8 AS created_at
"""  # noqa: S608 - a constant
_DELIVERED = "UPDATE Notification SET delivered_at = now(), last_error = NULL WHERE id = $1 AND delivered_at IS NULL"
_FAILED = """
    UPDATE Notification
    SET last_error = $2, next_attempt_at = CASE WHEN $3::float8 IS NULL THEN 'infinity' ELSE to_timestamp($3) END
    WHERE id = $1 AND delivered_at IS NULL AND next_attempt_at < 'infinity'
"""
# The oldest first. A row that its sender has locked is left to the next time.
_OVERFLOW = f"""
    WITH crowded AS (
        SELECT one.id, one.name, count(*) - $1::bigint AS beyond
        FROM Subscription AS one JOIN Notification AS row ON row.subscription_id = one.id AND {_WAITS}
        GROUP BY one.id HAVING count(*) > $1::bigint),
    oldest AS (
        SELECT crowded.name, waiting.id FROM crowded, LATERAL (
            SELECT row.id FROM Notification AS row WHERE row.subscription_id = crowded.id AND {_WAITS}
            ORDER BY row.id LIMIT least(crowded.beyond, $2::bigint) FOR UPDATE SKIP LOCKED) AS waiting
        LIMIT $2::bigint),
    given_up AS (
        UPDATE Notification AS row
        SET next_attempt_at = 'infinity', last_error = 'more than ' || $1::bigint || ' waited for this receiver'
        FROM oldest WHERE row.id = oldest.id RETURNING oldest.name)
    SELECT name, count(*) AS rows FROM given_up GROUP BY name
"""  # noqa: S608 - a constant
_ORPHANED = f"""
    UPDATE Notification SET next_attempt_at = 'infinity', last_error = 'the subscription was removed'
    WHERE id = ANY (ARRAY(
        SELECT id FROM Notification
        WHERE {_WAITS} AND NOT EXISTS (SELECT FROM Subscription WHERE Subscription.id = subscription_id)
        LIMIT $1::bigint FOR UPDATE SKIP LOCKED))
"""  # noqa: S608 - a constant
_BACKLOG = f"""
    SELECT one.name, count(row.id) AS waiting,
           coalesce(extract(epoch FROM now() - min(row.created_at)), 0)::float8 AS oldest_seconds
    FROM Subscription AS one LEFT JOIN Notification AS row ON row.subscription_id = one.id AND {_WAITS}
    GROUP BY one.name ORDER BY one.name
"""  # noqa: S608 - a constant


class PostgresNotificationOutbox:
    """Uses connections of its own, opened at the first call and again after each failure.

    The monitor's jobs ask by one of them, and tidy by another one that is closed after that; they wait for no row that
    another session has locked. The tasks beside the jobs take, mark and give up by a third one, which may wait.

    Args:
        database_url: With a role that may select and update ``Notification``, and select ``Subscription``.
        timeout_seconds: Longest time of one call, waiting for its turn and connecting included.
    """

    def __init__(self, database_url: str, *, timeout_seconds: float = 5.0) -> None:
        self._kept = KeptConnection(database_url, "the notifications", timeout_seconds, "understudy-notifications")
        self._asking = KeptConnection(
            database_url, "the notifications", min(timeout_seconds, ASK_SECONDS), "understudy-notifications"
        )
        self._tidying = KeptConnection(database_url, "the notifications", timeout_seconds, "understudy-notifications")

    async def due_subscriptions(self, now: float) -> Sequence[DueSubscription]:
        async with self._asking.use() as connection:
            rows = await connection.fetch(_DUE_SUBSCRIPTIONS, now)
        return [DueSubscription(row["id"], row["name"], row["receiver"], EventFormat(row["format"])) for row in rows]

    async def due(
        self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
    ) -> Sequence[QueuedNotification]:
        by = now if due_by is None else due_by
        async with self._kept.use() as connection:
            rows = await connection.fetch(_TAKE, subscription_id, by, limit, now + TAKEN_SECONDS)
        return [_queued(row) for row in sorted(rows, key=lambda row: int(row["id"]))]

    async def delivered(self, notification_id: int) -> None:
        async with self._kept.use() as connection:
            await connection.execute(_DELIVERED, notification_id)

    async def failed(self, notification_id: int, error: str, next_attempt_at: float | None) -> None:
        text = error.encode(errors="ignore").decode().replace("\0", "")[:_ERROR_CHARACTERS]
        async with self._kept.use() as connection:
            await connection.execute(_FAILED, notification_id, text, next_attempt_at)

    async def tidy(self, most_waiting: int) -> Sequence[Backlog]:
        try:
            return await self._tidy(most_waiting)
        finally:
            self._tidying.drop()

    async def _tidy(self, most_waiting: int) -> Sequence[Backlog]:
        given_up: Counter[str] = Counter()
        while True:
            async with self._tidying.use() as connection:
                orphaned = await connection.execute(_ORPHANED, PIECE_ROWS)
            async with self._tidying.use() as connection:
                found = await connection.fetch(_OVERFLOW, most_waiting, PIECE_ROWS)
            piece = Counter({row["name"]: row["rows"] for row in found})
            given_up += piece
            if piece.total() < PIECE_ROWS and orphaned != f"UPDATE {PIECE_ROWS}":
                break
        async with self._tidying.use() as connection:
            rows = await connection.fetch(_BACKLOG)
        return [Backlog(row["name"], row["waiting"], row["oldest_seconds"], given_up[row["name"]]) for row in rows]

    async def close(self) -> None:
        """Drop the connections."""
        self._kept.drop()
        self._asking.drop()


def _queued(row: asyncpg.Record) -> QueuedNotification:
    """Return a row as it is sent; one that a person wrote by hand may hold any JSON, which is told as it is."""
    event = None
    with suppress(ValueError):  # a number that is too large, or brackets that are too deep, for any reader
        payload = orjson.loads(row["payload"])
        data = payload if isinstance(payload, dict) else {"value": payload}
        event = ModelEvent(
            str(row["event_id"]), row["kind"], Severity(row["severity"]), row["model_name"], row["created_at"], data
        )
    return QueuedNotification(row["id"], event, row["attempts"], row["created_at"])
