"""Port of metric sources: the Prometheus APIs that plans may have asked."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from understudy.core.canary.metric_samples import ReadProblem


class MetricAnswer(NamedTuple):
    """What a source said of one query: values by the end of their minute, in seconds since the epoch."""

    values: Mapping[int, float] = {}
    """Finite ones, with six significant digits."""
    problem: ReadProblem = ReadProblem.NONE
    """``NO_SERIES`` and ``NO_NUMBER`` where the answer is fine and has no values."""
    detail: str = ""
    """For people, without secrets; empty where there is no problem."""


class MetricSources(Protocol):
    """The sources that this process knows the addresses of."""

    @property
    def names(self) -> AbstractSet[str]:
        """Their names."""

    async def read(self, source: str, query: str, start: int, end: int, /) -> MetricAnswer:
        """Run a query over a time, a value a minute, within a deadline. Never raises.

        Args:
            source: Its name; one that is not known answers with a problem.
            query: In PromQL; its result has one series at most, or that is a problem.
            start: Of the first minute's end, in seconds since the epoch.
            end: Of the last one's.
        """

    async def close(self) -> None:
        """Close the connections."""
