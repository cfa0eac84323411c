"""The in-memory twin of an alert channel: a receiver with incidents, as PagerDuty has them."""

from collections.abc import Iterable

from understudy.core.alerts.alerts import AlertAction, AlertEvent, Delivery

ACCEPTED = Delivery(202)


class MemoryAlertChannel:
    """Accepts every event, unless ``answers`` has another answer.

    Args:
        name: Which events of the outbox are for it.
        answers: Its answers to the next events, in this order; it accepts the events after those.
    """

    def __init__(self, name: str = "pagerduty", answers: Iterable[Delivery] = ()) -> None:
        self.name = name
        self.taken: list[AlertEvent] = []
        """Every accepted event, in order."""
        self.open: set[str] = set()
        """Keys of the incidents that are open."""
        self.opened = 0
        """Incidents it ever had."""
        self._answers = list(answers)

    async def send(self, event: AlertEvent) -> Delivery:
        """Return the next answer; an accepted event opens, keeps or resolves the incident with its key."""
        if self._answers:
            return self._answers.pop(0)
        self.taken.append(event)
        if event.action is AlertAction.TRIGGER:
            self.opened += event.dedup_key not in self.open
            self.open.add(event.dedup_key)
        elif event.action is AlertAction.RESOLVE:
            self.open.discard(event.dedup_key)
        return ACCEPTED

    async def close(self) -> None:
        """Nothing is open."""
