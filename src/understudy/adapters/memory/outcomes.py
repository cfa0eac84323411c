"""The in-memory twin of the table ``OutcomeEvent``."""

from collections.abc import Sequence

from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.errors import RegistryUnavailable
from understudy.ports.outcome_store import OutcomeResult


class MemoryOutcomeStore:
    """Events by their id, in the order in which they came."""

    def __init__(self) -> None:
        self.kept: dict[str, OutcomeEvent] = {}
        self.available = True

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        """Keep the events that are not known yet."""
        if not self.available:
            raise RegistryUnavailable("outcome events: this twin is switched off")
        results = []
        for outcome in outcomes:
            results.append(OutcomeResult.KNOWN if outcome.event_id in self.kept else OutcomeResult.NEW)
            self.kept.setdefault(outcome.event_id, outcome)
        return results

    async def close(self) -> None:
        """Nothing is open."""
