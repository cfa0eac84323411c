"""The in-memory twin of the table ``OutcomeEvent``."""

from collections.abc import Collection, Sequence

from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.errors import RegistryUnavailable
from understudy.ports.experiments.outcome_store import OutcomeResult


class MemoryOutcomeStore:
    """Events by their model and id, in the order in which they came.

    ``models`` are registered; ``None``: each that an event names.
    """

    def __init__(self, models: Collection[str] | None = None) -> None:
        self._models = models
        self.kept: dict[tuple[str, str], OutcomeEvent] = {}
        self.available = True

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        """Keep the events that are not known yet."""
        if not self.available:
            raise RegistryUnavailable("outcome events: this twin is switched off")
        results = []
        for outcome in outcomes:
            key = outcome.model_name, outcome.event_id
            results.append(OutcomeResult.KNOWN if key in self.kept else OutcomeResult.NEW)
            self.kept.setdefault(key, outcome)
        return results

    async def unknown_models(self, names: Collection[str]) -> frozenset[str]:
        """Return which names are not among those of the twin."""
        if not self.available:
            raise RegistryUnavailable("outcome events: this twin is switched off")
        return frozenset() if self._models is None else frozenset(names) - frozenset(self._models)

    async def new_metrics(self, metrics: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return which models and names no event has that is kept."""
        if not self.available:
            raise RegistryUnavailable("outcome events: this twin is switched off")
        return frozenset(metrics) - {(outcome.model_name, outcome.name) for outcome in self.kept.values()}

    async def close(self) -> None:
        """Nothing is open."""
