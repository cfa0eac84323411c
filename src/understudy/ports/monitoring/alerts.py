"""Alerts that wait in an outbox, and whom they are sent to."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from understudy.core.alerts.alerts import AlertEvent, Delivery


class QueuedAlert(NamedTuple):
    """An event on its way to one channel."""

    id: int
    channel: str
    event: AlertEvent
    attempts: int
    """Times that it was taken to be sent, this one included."""


class AlertOutbox(Protocol):
    """Alerts that are still to be delivered, each once for every channel. Raises as :class:`Lease` does."""

    async def add(self, event: AlertEvent) -> None:
        """Keep an event for every channel; one that resolves an incident that was never delivered is dropped."""

    async def due(self, now: float, limit: int) -> Sequence[QueuedAlert]:
        """Take up to ``limit`` due events, oldest first, so that no other monitor takes them for a minute.

        Of those with one key and one channel only the oldest is ever taken: the next one waits until that is delivered
        or given up.
        """

    async def delivered(self, alert_id: int) -> None:
        """Take an event out."""

    async def failed(self, alert_id: int, error: str, next_attempt_at: float | None) -> None:
        """Keep an event until a later time, or (``None``) as a dead letter; one that was delivered stays so."""

    async def close(self) -> None:
        """Close the connections."""


class AlertChannel(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """Which events of the outbox are for it."""

    async def send(self, event: AlertEvent) -> Delivery:
        """Send an event once, within the channel's own deadline, and say what the receiver answered. Never raises."""

    async def close(self) -> None:
        """Close the connections."""
