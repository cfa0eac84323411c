"""Delivers the outbox: at least once to each channel, in order, with an idempotency key that makes one incident of it.

The order is: take, send, mark. When a monitor dies between sending and marking, the event is sent once more a minute
later, and its key makes that the same incident. What a channel refuses is tried again with exponential backoff, and an
event waits for those before it with the same key, so that the end of an incident is never told before its beginning.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from understudy.core.alerts.alerts import Delivery, Outcome, next_attempt_seconds, with_runbook
from understudy.ports.monitoring.alerts import AlertChannel, AlertOutbox, QueuedAlert

_log = structlog.get_logger(__name__)

AT_ONCE = 20
"""Events that are sent at the same time."""


async def deliver_due(
    outbox: AlertOutbox,
    channels: Sequence[AlertChannel],
    now: Callable[[], float] = time.time,
    *,
    budget_seconds: float = 10.0,
    runbooks_url: str | None = None,
) -> Counter[tuple[str, Outcome]]:
    """Send what is due, each event once, and return how many of each channel's came to what.

    Args:
        outbox: Where the events are; it knows these channels' names.
        channels: Where they go.
        now: The wall clock, in seconds since the epoch.
        budget_seconds: After this long no more are taken. The whole call takes at most a send longer, and the rest
            is for the next tick.
        runbooks_url: Where ``docs/runbooks`` is served; each event is sent with a link to its page there.

    Raises:
        RegistryUnavailable: The outbox did; events that were taken are due again after a minute.
    """
    by_name = {channel.name: channel for channel in channels}
    began_at = now()
    came_to: Counter[tuple[str, Outcome]] = Counter()
    # Always what was due at the beginning: an event that fails is not taken twice in one call.
    while now() - began_at < budget_seconds and (alerts := await outbox.due(began_at, AT_ONCE)):
        came_to.update(
            await _deliver_all(outbox, by_name, [_with_runbook(alert, runbooks_url) for alert in alerts], now)
        )
    return came_to


async def _deliver_all(
    outbox: AlertOutbox, channels: Mapping[str, AlertChannel], alerts: Sequence[QueuedAlert], now: Callable[[], float]
) -> list[tuple[str, Outcome]]:
    """Deliver events that do not depend on each other; every one is tried before a problem of any is raised."""
    sends = (_deliver(outbox, channels[alert.channel], alert, now) for alert in alerts)
    results = await asyncio.gather(*sends, return_exceptions=True)
    problem = next((result for result in results if isinstance(result, BaseException)), None)
    if problem is not None:
        raise problem
    return [result for result in results if not isinstance(result, BaseException)]


def _with_runbook(alert: QueuedAlert, runbooks_url: str | None) -> QueuedAlert:
    return alert._replace(event=with_runbook(alert.event, runbooks_url))


async def _deliver(
    outbox: AlertOutbox, channel: AlertChannel, alert: QueuedAlert, now: Callable[[], float]
) -> tuple[str, Outcome]:
    delivery = await channel.send(alert.event)
    if delivery.outcome is Outcome.DELIVERED:
        await outbox.delivered(alert.id)
    else:
        wait_seconds = next_attempt_seconds(alert.attempts, delivery)
        _log_failure(alert, delivery, wait_seconds)
        next_attempt_at = None if wait_seconds is None else now() + wait_seconds
        await outbox.failed(alert.id, f"{delivery.status or 'no answer'} {delivery.detail}".strip(), next_attempt_at)
    return alert.channel, delivery.outcome


def _log_failure(alert: QueuedAlert, delivery: Delivery, wait_seconds: float | None) -> None:
    log = _log.warning if wait_seconds is not None else _log.error
    log(
        "alert.not_delivered",
        channel=alert.channel,
        dedup_key=alert.event.dedup_key,
        attempts=alert.attempts,
        status=delivery.status,
        detail=delivery.detail,
        next_attempt_seconds=wait_seconds,
    )
