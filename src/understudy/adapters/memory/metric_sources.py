"""The in-memory twin of metric sources."""

import asyncio
from collections.abc import Mapping

from understudy.core.canary.metric_samples import SAMPLE_SECONDS, ReadProblem
from understudy.ports.rollout.metric_sources import MetricAnswer


class MemoryMetricSources:
    """Answers each query with the same value for each minute, or with a problem.

    Args:
        values: By source and query; ``None`` never answers.
    """

    def __init__(self, values: Mapping[str, Mapping[str, float | ReadProblem | None]]) -> None:
        self.values = {source: dict(queries) for source, queries in values.items()}
        self.asked: list[tuple[str, str, int, int]] = []
        """Source, query, start and end of each question."""

    @property
    def names(self) -> frozenset[str]:
        """The sources that it knows."""
        return frozenset(self.values)

    async def read(self, source: str, query: str, start: int, end: int) -> MetricAnswer:
        """Return what it was told."""
        self.asked.append((source, query, start, end))
        if source not in self.values:
            return MetricAnswer(problem=ReadProblem.UNKNOWN_SOURCE, detail=f"there is no source {source}")
        found = self.values[source].get(query, ReadProblem.NO_SERIES)
        if found is None:
            await asyncio.Event().wait()
            raise AssertionError
        if isinstance(found, ReadProblem):
            return MetricAnswer(problem=found)
        return MetricAnswer({at: float(f"{found:.6g}") for at in range(start, end + 1, SAMPLE_SECONDS)})

    async def close(self) -> None:
        """Do nothing: it has no connections."""
