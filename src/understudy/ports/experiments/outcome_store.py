"""What became of a prediction, as callers report it."""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from understudy.core.experiments.outcome_events import OutcomeEvent


class OutcomeResult(Enum):
    """What became of an outcome event."""

    NEW = "new"
    KNOWN = "known"
    """Its model had an event with this ``event_id`` before; what came first stands."""


class OutcomeStore(Protocol):
    """``OutcomeEvent``: what happened afterwards, each event once."""

    async def add(self, outcomes: Sequence[OutcomeEvent]) -> Sequence[OutcomeResult]:
        """Store those that are not known yet, all or none, and return each one's result, in order.

        Raises:
            RegistryUnavailable: Nothing is known to be stored; adding the same events again is safe.
            MigrationNeeded: The table is not there.
        """

    async def unknown_models(self, names: Collection[str]) -> frozenset[str]:
        """Return which of the names are no registered models; errors as :meth:`add`."""

    async def new_metrics(self, metrics: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return which of these models and names of outcomes have had no event yet.

        Raises:
            LoginNotAllowed: The login may store events, and not read their names.
            RegistryUnavailable, MigrationNeeded: As :meth:`add`.
        """

    async def close(self) -> None:
        """Close the connection."""


class FileRow(NamedTuple):
    """A row of a table in a file, or why its format makes none of it."""

    line: int
    """From 1 on; in a file without lines the row's number."""
    cells: Mapping[str, Any]
    problem: str = ""
