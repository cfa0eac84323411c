"""Classes that a model's versions are known to answer with, so that an hour of few answers names them too."""

from collections.abc import Sequence

from understudy.core.drift.baseline import MAX_CATEGORIES, baselines_of
from understudy.core.drift.subject_window import CLASSES, SubjectWindow
from understudy.ports.monitoring.metric_store import ActiveVersion, MetricStore

PAST_SECONDS = 86_400.0
"""The hours of so long before say which classes there are, beside the baseline."""
_MAX_NAMES = 10 * MAX_CATEGORIES
"""Of a model; a version that answers with free text has no classes, but may give some answers often."""


class ClassNames:
    """Remembers the classes of each model's versions; each version's past is read once."""

    def __init__(self, store: MetricStore) -> None:
        self._store = store
        self._by_model: dict[str, set[str]] = {}
        self._read: set[int] = set()

    async def of(self, model_name: str, versions: Sequence[ActiveVersion], until: float) -> frozenset[str]:
        """Return the classes that versions of one model had in a baseline, or answered with before a moment."""
        known = self._by_model.setdefault(model_name, set())
        for version in versions:
            if version.has_classes and version.id not in self._read:
                facts = await self._store.drift_facts(version.id, until - PAST_SECONDS, [CLASSES])
                known |= _of_baseline(facts.metrics)
                for hour in facts.hours.get(CLASSES, ()):
                    self.add(model_name, hour)
                self._read.add(version.id)
        return frozenset(known)

    def add(self, model_name: str, hour: SubjectWindow) -> None:
        """Take over what an hour names."""
        known = self._by_model.setdefault(model_name, set())
        known.update(sorted(hour.categories)[: max(0, _MAX_NAMES - len(known))])

    def forget_others(self, versions: Sequence[ActiveVersion]) -> None:
        """Forget what is not active any more."""
        names = {version.model_name for version in versions}
        self._by_model = {name: known for name, known in self._by_model.items() if name in names}
        self._read &= {version.id for version in versions}


def _of_baseline(metrics: object) -> set[str]:
    """Return the classes of a baseline; none of one that cannot be read, which the drift report says."""
    try:
        classes = baselines_of(metrics if isinstance(metrics, dict) else None).classes
    except ValueError:
        return set()
    return set() if classes is None else set(classes.shares)
