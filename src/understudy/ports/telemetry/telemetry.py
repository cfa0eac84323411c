"""What is counted and measured of ourselves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # numpy, which processes that answer no calls do without
    from understudy.core.routing.policy import ModelVersion


class Telemetry(Protocol):
    """Metrics. Label values come from the registry or from enums, never from a request."""

    def predicted(
        self, version: "ModelVersion", role: str, outcome: str, seconds: Sequence[float], scores: Sequence[float]
    ) -> None:
        """Count calls of a version that ended alike: the duration of each, and the scores of those that have one."""

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to the counter ``name`` (docs/reference/metrics.md lists them with their labels, in order)."""

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to the histogram ``name``."""

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set the gauge ``name``."""

    def forget(self, name: str, *labels: str) -> None:
        """Drop the series of the gauge ``name`` with these labels, if there is one: what it measured is gone."""
