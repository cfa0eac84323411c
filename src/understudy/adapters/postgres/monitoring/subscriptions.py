"""``SubscriptionStore`` in Postgres: who is told of which events, and what became of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from understudy.adapters.postgres.connections.connection import SessionPerCall, named_by_callers
from understudy.adapters.postgres.connections.signing import sign
from understudy.adapters.postgres.registry.refusal_words import CONSTRAINT_WORDS
from understudy.core.alerts.alerts import Severity
from understudy.core.alerts.events import EventFormat
from understudy.errors import AlreadyRegistered, NotRegistered, PolicyRefused
from understudy.ports.monitoring.notifications import (
    NewSubscription,
    NotificationRecord,
    RemovedSubscription,
    SubscriptionRecord,
)
from understudy.ports.registry.registry import Actor

_ADD = """
    INSERT INTO Subscription (name, receiver, format, model_name, kinds, severity) VALUES ($1, $2, $3, $4, $5, $6)
    RETURNING *, 0 AS waiting, 0 AS given_up, NULL::timestamptz AS delivered_at, NULL AS last_error
"""
_RECORDS = """
    SELECT one.*, (
        SELECT count(*) FROM Notification
        WHERE subscription_id = one.id AND delivered_at IS NULL AND next_attempt_at < 'infinity') AS waiting, (
        SELECT count(*) FROM Notification
        WHERE subscription_id = one.id AND delivered_at IS NULL AND next_attempt_at = 'infinity') AS given_up, (
        SELECT max(delivered_at) FROM Notification WHERE subscription_id = one.id) AS delivered_at, (
        SELECT last_error FROM Notification
        WHERE subscription_id = one.id AND delivered_at IS NULL AND next_attempt_at < 'infinity'
          AND last_error IS NOT NULL
        ORDER BY id LIMIT 1) AS last_error
    FROM Subscription AS one ORDER BY name
"""
_ONE = """
    SELECT one.*, (
        SELECT count(*) FROM Notification
        WHERE subscription_id = one.id AND delivered_at IS NULL AND next_attempt_at < 'infinity') AS waiting
    FROM Subscription AS one WHERE name = $1
"""
_REMOVE = "DELETE FROM Subscription WHERE name = $1"
_TEST = "SELECT understudy_test_subscription($1)"
_STATE = """
    SELECT attempts, last_error, delivered_at IS NOT NULL, delivered_at IS NULL AND next_attempt_at = 'infinity'
    FROM Notification WHERE id = $1
"""


class PostgresSubscriptionStore(SessionPerCall):
    """Opens a connection for each call and keeps none."""

    async def add(self, new: NewSubscription, actor: Actor) -> SubscriptionRecord:
        async with self._transaction() as connection:
            await sign(connection, actor)
            try:
                (row,) = await connection.fetch(
                    _ADD, new.name, new.receiver, new.format, new.model_name, list(new.kinds), new.severity
                )
            except asyncpg.UniqueViolationError:
                raise AlreadyRegistered(f"there is a subscription {new.name!r} already") from None
            except (asyncpg.CheckViolationError, asyncpg.StringDataRightTruncationError) as said:
                words = CONSTRAINT_WORDS.get(said.constraint_name or "")
                if words is not None:
                    raise PolicyRefused(words.detail, hint=words.hint) from None
                raise PolicyRefused(said.message or str(said), hint=said.hint) from None
            return _of_row(row)

    async def list_all(self) -> Sequence[SubscriptionRecord]:
        async with self._transaction() as connection:
            return [_of_row(row) for row in await connection.fetch(_RECORDS)]

    async def remove(self, name: str, actor: Actor, *, dry_run: bool = False) -> RemovedSubscription:
        async with self._transaction() as connection:
            row = await connection.fetchrow(_ONE, name)
            if row is None:
                raise _no_subscription(name)
            if not dry_run:
                await sign(connection, actor)
                await connection.execute(_REMOVE, name)
            return RemovedSubscription(_asked(row), row["waiting"])

    async def send_test(self, name: str, actor: Actor) -> int:
        async with self._transaction() as connection:
            await sign(connection, actor)
            queued: int | None = await connection.fetchval(_TEST, name)
        if queued is None:
            raise _no_subscription(name)
        return queued

    async def show_notification(self, notification_id: int) -> NotificationRecord | None:
        async with self._transaction() as connection:
            row = await connection.fetchrow(_STATE, notification_id)
        return None if row is None else NotificationRecord(*row)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[asyncpg.Connection]:
        async with (
            self._session("the subscriptions", "understudy-subscriptions") as connection,
            connection.transaction(),
        ):
            with named_by_callers():
                yield connection


def _asked(row: asyncpg.Record) -> NewSubscription:
    return NewSubscription(
        row["name"],
        row["receiver"],
        EventFormat(row["format"]),
        row["model_name"],
        tuple(row["kinds"]),
        Severity(row["severity"]),
    )


def _of_row(row: asyncpg.Record) -> SubscriptionRecord:
    return SubscriptionRecord(
        _asked(row),
        row["created_by"],
        row["created_at"],
        row["waiting"],
        row["given_up"],
        row["delivered_at"],
        row["last_error"],
    )


def _no_subscription(name: str) -> NotRegistered:
    return NotRegistered(f"there is no subscription {name!r}", hint="understudy subscription list shows them.")
