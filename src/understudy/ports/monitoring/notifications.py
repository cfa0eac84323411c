"""Subscriptions to events, the outbox that notifications wait in, and whom they are sent to."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import NamedTuple, Protocol

from understudy.core.alerts.alerts import Delivery, Severity
from understudy.core.alerts.events import EventFormat, ModelEvent
from understudy.ports.registry.registry import Actor


class NewSubscription(NamedTuple):
    """Who is to be told of what."""

    name: str
    receiver: str
    """The name of an address that the monitor's settings have."""
    format: EventFormat = EventFormat.CLOUDEVENTS
    model_name: str | None = None
    """``None``: events of all models."""
    kinds: Sequence[str] = ()
    """Of ``core.alerts.events.KINDS``; empty: all."""
    severity: Severity = Severity.INFO
    """This one, and what is worse."""


class SubscriptionRecord(NamedTuple):
    """A subscription, and what became of its notifications."""

    subscription: NewSubscription
    created_by: str
    created_at: datetime
    waiting: int
    given_up: int
    """Of those that are still kept."""
    delivered_at: datetime | None
    """When its receiver last took one."""
    last_error: str | None
    """Why the one that waits longest was not taken, without secrets; ``None``: it has not been tried."""


class RemovedSubscription(NamedTuple):
    """A subscription that is gone, or would be."""

    subscription: NewSubscription
    waiting: int
    """What waited for its receiver, and is given up."""


class NotificationRecord(NamedTuple):
    """What became of one notification so far."""

    attempts: int
    last_error: str | None
    is_delivered: bool
    is_given_up: bool


class SubscriptionStore(Protocol):
    """Subscriptions, as commands change and show them. Raises as :class:`Registry` does."""

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Have the calls inside use one connection, one after the other."""

    async def add(self, new: NewSubscription, actor: Actor) -> SubscriptionRecord:
        """Subscribe.

        Raises:
            AlreadyRegistered: There is one of this name.
            PolicyRefused: The database refuses it, and says why.
        """

    async def list_all(self) -> Sequence[SubscriptionRecord]:
        """Return every subscription, by name."""

    async def remove(self, name: str, actor: Actor, *, dry_run: bool = False) -> RemovedSubscription:
        """Remove a subscription; what waits for its receiver is given up.

        Raises:
            NotRegistered: There is none of this name.
        """

    async def send_test(self, name: str, actor: Actor) -> int:
        """Queue a notification that says that it is a test, and return its id; raises as :meth:`remove`."""

    async def show_notification(self, notification_id: int) -> NotificationRecord | None:
        """Return what became of a notification; ``None``: age has deleted it."""


class DueSubscription(NamedTuple):
    """A subscription that has notifications to be sent."""

    id: int
    name: str
    receiver: str
    format: EventFormat


class QueuedNotification(NamedTuple):
    """An event on its way to one subscription's receiver."""

    id: int
    event: ModelEvent | None
    """``None``: what the row holds cannot be read."""
    attempts: int
    """Times that it was taken to be sent, this one included."""
    queued_at: float
    """Seconds since the epoch."""


class Backlog(NamedTuple):
    """What waits for a subscription's receiver."""

    name: str
    waiting: int
    oldest_seconds: float
    """How long the oldest one has waited; 0 when none waits."""
    given_up: int = 0
    """Those beyond the bound that were given up just now."""


class NotificationOutbox(Protocol):
    """Notifications that are still to be delivered. Raises as :class:`Lease` does."""

    async def due_subscriptions(self, now: float) -> Sequence[DueSubscription]:
        """Return the subscriptions that have a notification whose time has come."""

    async def due(
        self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
    ) -> Sequence[QueuedNotification]:
        """Take up to ``limit`` due notifications, oldest first, so that no other monitor takes them for a minute.

        Of each model only the oldest one that waits is ever taken: the next one follows once it is delivered or given
        up. None is taken once the subscription is removed.

        Args:
            subscription_id: Whose.
            now: The minute begins here.
            limit: Most of them.
            due_by: Only those whose time had come by then; ``None``: by now.
        """

    async def delivered(self, notification_id: int) -> None:
        """Take a notification out."""

    async def failed(self, notification_id: int, error: str, next_attempt_at: float | None) -> None:
        """Keep a notification until a later time, or (``None``) give it up.

        One that is delivered or given up stays so.
        """

    async def tidy(self, most_waiting: int) -> Sequence[Backlog]:
        """Give up what waits beyond a number, the oldest first, and for no subscription; return what still waits.

        In pieces: what was given up stays so when a later piece fails.
        """

    async def close(self) -> None:
        """Close the connections."""


class Receivers(Protocol):
    """The receivers that this process knows the addresses of."""

    async def send(self, receiver: str, event_format: EventFormat, event: ModelEvent, /) -> Delivery:
        """Send an event once, within a deadline, and say what the receiver answered. Never raises."""

    async def close(self) -> None:
        """Close the connections."""
