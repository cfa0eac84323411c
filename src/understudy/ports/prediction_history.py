"""What a version was asked and answered, for reports."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from understudy.core.sampling import InputSample


class LoggedScores(NamedTuple):
    """Scores of a version from the log."""

    groups: Sequence[Sequence[float]]
    """Each entity's are in one of them."""
    calls: int
    """How many there were; the groups may hold a sample."""


class PredictionHistory(Protocol):
    """What a version was asked and answered, for somebody who waits.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        """Return the scores that drift is judged by: of a version's own answers in all roles.

        What the cache answered repeats a score that was counted, and a forced call is somebody's wish: neither is one.

        Args:
            version_id: The version.
            since: In seconds since the epoch, as ``until``.
            until: Not included.
            at_most: About how many are wanted; of more a sample is taken by the calls' hashes, always the same.
        """
        ...

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        """Return logged inputs of a version, by entity; of more than ``at_most`` those of entities chosen by hash."""
        ...
