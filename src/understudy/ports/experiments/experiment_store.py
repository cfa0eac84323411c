"""Experiments that were planned, and their frozen analysis."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from understudy.ports.registry.registry import Actor


class NewExperiment(NamedTuple):
    """A test to be declared; ``plan`` is JSON and never changes."""

    model_name: str
    metric: str
    champion_id: int
    challenger_id: int
    started_at: float
    plan: Mapping[str, Any]
    created_by: str


class ExperimentRecord(NamedTuple):
    """A declared test as its row has it; ``plan`` and ``result`` (the looks taken, what they said) may be any JSON."""

    id: int
    model_name: str
    metric: str
    champion_id: int
    challenger_id: int
    started_at: float
    plan: Mapping[str, Any]
    result: Mapping[str, Any] | None
    created_by: str
    ended_at: float | None
    ended_by: str | None = None
    """Who ended it; ``None`` also where it ended before that was kept."""


class ExperimentStore(Protocol):
    """``Experiment``: tests that were declared. Raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def latest(
        self, model_name: str, metric: str, versions: tuple[int, int] | None = None
    ) -> ExperimentRecord | None:
        """Return the newest test of a metric, of these two versions if they are named."""

    async def newest(self, model_name: str | None, at_most: int) -> Sequence[ExperimentRecord]:
        """Return the newest tests, of one model or of all, newest first."""

    async def declare(self, new: NewExperiment) -> ExperimentRecord | None:
        """Store a test; ``None`` when an open one of these versions and this metric is there already."""

    async def record(
        self, before: ExperimentRecord, result: Mapping[str, Any], *, ends: bool, by: Actor | None = None
    ) -> bool:
        """Replace the result; ``False``, and nothing is written, when it is no longer the one of ``before``.

        ``by`` ends the test, where that is a person and no decision.
        """
