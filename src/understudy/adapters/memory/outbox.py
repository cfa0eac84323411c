"""The in-memory twin of the table ``AlertOutbox``."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from understudy.core.alerts.alerts import AlertAction, AlertEvent, event_from_json, event_to_json
from understudy.ports.monitoring.alerts import QueuedAlert

TAKEN_SECONDS = 60.0
"""How long a taken event is reserved for its sender: longer than a send may take."""
_NEVER = float("inf")


@dataclass(slots=True)
class _Row:
    id: int
    channel: str
    event: AlertEvent
    attempts: int = 0
    next_attempt_at: float = 0.0
    last_error: str | None = None
    is_delivered: bool = False

    @property
    def waits(self) -> bool:
        return not self.is_delivered and self.next_attempt_at < _NEVER


class MemoryAlertOutbox:
    """Events in a list.

    Args:
        channels: Names of the channels; with none, events are dropped at once.
    """

    def __init__(self, channels: Sequence[str]) -> None:
        self._channels = tuple(channels)
        self._rows: list[_Row] = []
        self._ids = count(1)

    async def add(self, event: AlertEvent) -> None:
        """Keep an event for every channel."""
        if event.action is AlertAction.RESOLVE and not self._is_open(event.dedup_key):
            return
        stored = event_from_json(event_to_json(event))
        self._rows.extend(_Row(next(self._ids), channel, stored) for channel in self._channels)

    async def due(self, now: float, limit: int) -> Sequence[QueuedAlert]:
        """Take the oldest event of each key and channel, if it is due."""
        heads: dict[tuple[str, str], _Row] = {}
        for row in self._rows:
            if row.waits:
                heads.setdefault((row.event.dedup_key, row.channel), row)
        taken = sorted((row for row in heads.values() if row.next_attempt_at <= now), key=lambda row: row.id)[:limit]
        for row in taken:
            row.attempts += 1
            row.next_attempt_at = now + TAKEN_SECONDS
        return [QueuedAlert(row.id, row.channel, row.event, row.attempts) for row in taken]

    async def delivered(self, alert_id: int) -> None:
        """Mark an event as delivered."""
        self._row(alert_id).is_delivered = True

    async def failed(self, alert_id: int, error: str, next_attempt_at: float | None) -> None:
        """Keep an event for a later attempt; ``None``: only for an operator to read."""
        row = self._row(alert_id)
        if not row.is_delivered:
            row.last_error = error
            row.next_attempt_at = _NEVER if next_attempt_at is None else next_attempt_at

    async def close(self) -> None:
        """Nothing is open."""

    def _row(self, alert_id: int) -> _Row:
        return next(row for row in self._rows if row.id == alert_id)

    def _is_open(self, dedup_key: str) -> bool:
        actions = [row.event.action for row in self._rows if row.event.dedup_key == dedup_key]
        told = [action for action in actions if action is not AlertAction.CHANGE]
        return bool(told) and told[-1] is not AlertAction.RESOLVE
