"""The in-memory twin of ``ports.Telemetry``: its counts, for tests to read."""

from collections import Counter
from collections.abc import Sequence

from understudy.core.routing.policy import ModelVersion


class MemoryTelemetry:
    """Keeps counters and gauges by name and labels."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}
        self.observed: dict[tuple[str, ...], list[float]] = {}

    def predicted(
        self, version: ModelVersion, role: str, outcome: str, seconds: Sequence[float], scores: Sequence[float]
    ) -> None:
        labels = (version.model_name, version.version, role)
        self.count("predict_requests_total", *labels, outcome, by=len(seconds))
        for one in seconds:
            self.observe("predict_duration_seconds", one, *labels)
        for score in scores:
            self.observe("prediction_score", score, *labels)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        self.counts[name, *labels] += int(by)

    def observe(self, name: str, value: float, *labels: str) -> None:
        self.observed.setdefault((name, *labels), []).append(value)

    def set(self, name: str, value: float, *labels: str) -> None:
        self.gauges[name, *labels] = value

    def forget(self, name: str, *labels: str) -> None:
        self.gauges.pop((name, *labels), None)
