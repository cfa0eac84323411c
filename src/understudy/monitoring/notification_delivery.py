"""Delivers notifications: at least once to each subscription, beside the monitor's jobs, one task for each receiver.

A receiver that hangs holds up its own subscription alone: neither pages to on-call, nor rollouts, nor other receivers.
The order is take, send, mark, as with alerts: when a monitor dies between sending and marking, the event is sent once
more a minute later, with the same id.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import StrEnum

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.alerts.alerts import MAX_ASKED_WAIT_SECONDS, Delivery, Outcome
from understudy.core.alerts.events import MAX_WAITING, EventFormat, ModelEvent, next_notification_seconds
from understudy.errors import UnderstudyError
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.notifications import (
    DueSubscription,
    NotificationOutbox,
    QueuedNotification,
    Receivers,
)
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

AT_ONCE = 20
"""Notifications of one subscription that are sent at the same time, each of another model."""
CHAT_AT_ONCE = 2
"""Of one that leads to a chat. Source: Slack, "Rate limits": a webhook takes about one message a second."""
_COUNTED, _WAITING, _OLDEST = "notification_deliveries_total", "notifications_waiting", "notification_oldest_seconds"


class Sent(StrEnum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    TRY_AGAIN = "try_again"
    GIVEN_UP = "given_up"


class NotificationDelivery:
    """Starts a task for each subscription that has something to be sent.

    Args:
        outbox: Where notifications wait; its opener closes it after :meth:`stop`.
        receivers: Where they go.
        telemetry: Gets deliveries by outcome, and what waits.
        finish_seconds: How long sends that are under way may take after :meth:`stop`.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(
        self,
        outbox: NotificationOutbox,
        receivers: Receivers,
        telemetry: Telemetry,
        *,
        finish_seconds: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._outbox = outbox
        self._receivers = receivers
        self._telemetry = telemetry
        self._finish_seconds = finish_seconds
        self._now = now
        self._running: dict[asyncio.Task[None], int] = {}
        """Each with its subscription."""
        self._not_before: dict[str, float] = {}
        """By receiver, when it wants to be asked again, as it said."""
        self._is_stopping = False
        self._known: set[str] = set()
        """Names of the subscriptions that have series."""

    async def tick(self, _epoch: Epoch) -> None:
        """Start what is due, and wait for none of it.

        Without a fence: each notification is taken by one process for a minute, and bears being sent twice.

        Raises:
            RegistryUnavailable: The outbox did.
        """
        self._is_stopping = False
        for subscription in await self._outbox.due_subscriptions(self._now()):
            is_ready = self._now() >= self._not_before.get(subscription.receiver, 0.0)
            if is_ready and subscription.id not in self._running.values():
                task = asyncio.create_task(self._deliver(subscription))
                self._running[task] = subscription.id
                task.add_done_callback(self._forget)

    async def measure(self, _epoch: Epoch) -> None:
        """Give up what is beyond its bound, and say what waits.

        Raises:
            RegistryUnavailable: The outbox did.
        """
        backlogs = await self._outbox.tidy(MAX_WAITING)
        names = {backlog.name for backlog in backlogs}
        for name in self._known - names:
            self._telemetry.forget(_WAITING, name)
            self._telemetry.forget(_OLDEST, name)
        for name in names - self._known:
            for outcome in Sent:
                # A counter that first appears with 1 has not increased, for Prometheus.
                self._telemetry.count(_COUNTED, name, outcome.value, by=0)
        self._known = names
        for backlog in backlogs:
            self._telemetry.set(_WAITING, backlog.waiting, backlog.name)
            self._telemetry.set(_OLDEST, backlog.oldest_seconds, backlog.name)
            if backlog.given_up:
                self._telemetry.count(_COUNTED, backlog.name, Sent.GIVEN_UP.value, by=backlog.given_up)
                _log.error("notification.too_many_wait", subscription=backlog.name, given_up=backlog.given_up)

    async def settle(self) -> None:
        """Wait for every task that was started."""
        await asyncio.gather(*self._running)

    async def stop(self) -> None:
        """Let sends that are under way end within their time, and break off the others; a later tick begins anew."""
        self._is_stopping = True
        tasks = list(self._running)
        if tasks:
            await asyncio.wait(tasks, timeout=self._finish_seconds)
        await end_tasks(tasks)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)

    async def _deliver(self, subscription: DueSubscription) -> None:
        """Send what is due now, round after round, until one in which the receiver takes nothing or asks for time."""
        began_at = self._now()
        try:
            while not self._is_stopping and (taken := await self._take(subscription, began_at)):
                if Sent.TRY_AGAIN in (sent := await self._send_all(subscription, taken)) and len({*sent}) == 1:
                    break
        except Exception as problem:  # noqa: BLE001 - logged, and the next tick begins anew; other receivers go on
            _log.warning(
                "notification.round_failed",
                subscription=subscription.name,
                problem=f"{type(problem).__name__}: {problem}",
                exc_info=not isinstance(problem, UnderstudyError),
            )

    async def _take(self, subscription: DueSubscription, due_by: float) -> Sequence[QueuedNotification]:
        """Take what was due when the task began; reserved from now on, however long ago that was."""
        now = self._now()
        if now < self._not_before.get(subscription.receiver, now):
            return []
        at_once = CHAT_AT_ONCE if subscription.format is EventFormat.SLACK else AT_ONCE
        return await self._outbox.due(subscription.id, now, at_once, due_by=due_by)

    async def _send_all(self, subscription: DueSubscription, taken: Sequence[QueuedNotification]) -> list[Sent]:
        """Send notifications of different models; every one is tried before a problem of any is raised."""
        sends = (self._send(subscription, notification) for notification in taken)
        results = await asyncio.gather(*sends, return_exceptions=True)
        problem = next((result for result in results if isinstance(result, BaseException)), None)
        if problem is not None:
            raise problem
        return [result for result in results if not isinstance(result, BaseException)]

    async def _send(self, subscription: DueSubscription, notification: QueuedNotification) -> Sent:
        if notification.event is None:
            sent = await self._give_up_unreadable(subscription, notification)
        else:
            delivery = await self._receivers.send(subscription.receiver, subscription.format, notification.event)
            if delivery.outcome is Outcome.DELIVERED:
                await self._outbox.delivered(notification.id)
                sent = Sent.DELIVERED
            else:
                self._hold_off(subscription.receiver, delivery)
                sent = await self._keep(subscription, notification, notification.event, delivery)
        self._telemetry.count(_COUNTED, subscription.name, sent.value)
        return sent

    def _hold_off(self, receiver: str, delivery: Delivery) -> None:
        """Remember a receiver's Retry-After, which is for all of its subscriptions and models."""
        asked_seconds = delivery.retry_after_seconds
        if asked_seconds is not None and delivery.outcome is Outcome.TRY_AGAIN:
            until = self._now() + min(asked_seconds, MAX_ASKED_WAIT_SECONDS)
            self._not_before[receiver] = max(until, self._not_before.get(receiver, until))

    async def _give_up_unreadable(self, subscription: DueSubscription, notification: QueuedNotification) -> Sent:
        _log.error("notification.unreadable", subscription=subscription.name, notification=notification.id)
        await self._outbox.failed(notification.id, "its payload cannot be read", None)
        return Sent.GIVEN_UP

    async def _keep(
        self, subscription: DueSubscription, notification: QueuedNotification, event: ModelEvent, delivery: Delivery
    ) -> Sent:
        age_seconds = self._now() - notification.queued_at
        wait_seconds = next_notification_seconds(notification.attempts, delivery, age_seconds)
        log = _log.info if wait_seconds is not None else _log.error
        log(
            "notification.not_delivered",
            subscription=subscription.name,
            receiver=subscription.receiver,
            event_id=event.id,
            kind=event.kind,
            attempts=notification.attempts,
            status=delivery.status,
            detail=delivery.detail,
            next_attempt_seconds=wait_seconds,
        )
        next_attempt_at = None if wait_seconds is None else self._now() + wait_seconds
        error = f"{delivery.status or 'no answer'} {delivery.detail}".strip()
        await self._outbox.failed(notification.id, error, next_attempt_at)
        return Sent.GIVEN_UP if wait_seconds is None else Sent.TRY_AGAIN
