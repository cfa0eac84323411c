"""The in-memory twins of the table ``Notification``, and of receivers."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from understudy.core.alerts.alerts import Delivery
from understudy.core.alerts.events import EventFormat, ModelEvent
from understudy.ports.monitoring.notifications import Backlog, DueSubscription, QueuedNotification

TAKEN_SECONDS = 60.0
"""How long a taken notification is reserved for its sender: longer than a send may take."""
_NEVER = float("inf")
_ACCEPTED = Delivery(202)


@dataclass(slots=True)
class _Row:
    id: int
    subscription: str
    event: ModelEvent
    added_at: float
    attempts: int = 0
    next_attempt_at: float = 0.0
    last_error: str | None = None
    is_delivered: bool = False

    @property
    def waits(self) -> bool:
        return not self.is_delivered and self.next_attempt_at < _NEVER


class MemoryNotificationOutbox:
    """Notifications in a list, of subscriptions that ask for every event.

    Args:
        subscriptions: Their names and receivers.
    """

    def __init__(self, *subscriptions: tuple[str, str]) -> None:
        self.subscriptions = dict(subscriptions)
        """May be changed at any time."""
        self._ids = {name: number for number, (name, _) in enumerate(subscriptions, 1)}
        self._rows: list[_Row] = []
        self._row_ids = count(1)

    def add(self, event: ModelEvent, now: float = 0.0) -> None:
        """Write an event for every subscription, as triggers do."""
        self._rows.extend(_Row(next(self._row_ids), name, event, now) for name in self.subscriptions)

    @property
    def errors(self) -> dict[str, list[str | None]]:
        """Of each subscription the errors of what was given up."""
        given_up = [row for row in self._rows if not row.is_delivered and not row.waits]
        return {name: [row.last_error for row in given_up if row.subscription == name] for name in self._ids}

    async def due_subscriptions(self, now: float) -> Sequence[DueSubscription]:
        """Return those with a row that is due."""
        return [
            DueSubscription(self._ids[name], name, receiver, EventFormat.CLOUDEVENTS)
            for name, receiver in self.subscriptions.items()
            if any(row.next_attempt_at <= now for row in self._heads(name))
        ]

    async def due(
        self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
    ) -> Sequence[QueuedNotification]:
        """Take the oldest of each model, if it is due."""
        name = next((name for name in self.subscriptions if self._ids[name] == subscription_id), None)
        by = now if due_by is None else due_by
        heads = [] if name is None else self._heads(name)
        taken = sorted((row for row in heads if row.next_attempt_at <= by), key=lambda row: row.id)[:limit]
        for row in taken:
            row.attempts += 1
            row.next_attempt_at = now + TAKEN_SECONDS
        return [QueuedNotification(row.id, row.event, row.attempts, row.added_at) for row in taken]

    async def delivered(self, notification_id: int) -> None:
        """Mark a notification as delivered."""
        self._row(notification_id).is_delivered = True

    async def failed(self, notification_id: int, error: str, next_attempt_at: float | None) -> None:
        """Keep a notification for a later attempt; ``None``: only for an operator to read."""
        row = self._row(notification_id)
        if row.waits:
            row.last_error = error
            row.next_attempt_at = _NEVER if next_attempt_at is None else next_attempt_at

    async def tidy(self, most_waiting: int) -> Sequence[Backlog]:
        """Give up what is too many, or for no subscription."""
        backlogs = []
        for name in self._ids:
            rows = [row for row in self._rows if row.subscription == name and row.waits]
            kept = rows[-most_waiting:] if name in self.subscriptions else []
            for row in rows[: len(rows) - len(kept)]:
                row.next_attempt_at, row.last_error = _NEVER, "given up"
            if name in self.subscriptions:
                oldest = min((row.added_at for row in kept), default=0.0)
                backlogs.append(Backlog(name, len(kept), oldest, len(rows) - len(kept)))
        return backlogs

    async def close(self) -> None:
        """Nothing is open."""

    def _heads(self, name: str) -> list[_Row]:
        """Return the oldest row of each model that waits."""
        heads: dict[str | None, _Row] = {}
        for row in self._rows:
            if row.waits and row.subscription == name:
                heads.setdefault(row.event.model_name, row)
        return list(heads.values())

    def _row(self, notification_id: int) -> _Row:
        return next(row for row in self._rows if row.id == notification_id)


class MemoryReceivers:
    """Receivers that take every event, unless they have another answer.

    Args:
        answers: By receiver, its answers to the next events, in this order; it accepts the events after those.
    """

    def __init__(self, **answers: Iterable[Delivery]) -> None:
        self.taken: dict[str, list[ModelEvent]] = {}
        """Every accepted event, in order, by receiver."""
        self.has_taken = asyncio.Event()
        self._answers = {name: given if isinstance(given, list) else list(given) for name, given in answers.items()}

    async def send(self, receiver: str, _event_format: EventFormat, event: ModelEvent) -> Delivery:
        """Return the next answer; an accepted event is kept."""
        if self._answers.get(receiver):
            return self._answers[receiver].pop(0)
        self.taken.setdefault(receiver, []).append(event)
        self.has_taken.set()
        return _ACCEPTED

    async def close(self) -> None:
        """Nothing is open."""
