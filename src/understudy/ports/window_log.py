"""Counted windows of fifteen seconds, by version."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from understudy.core.windows import Window


class LatestWindows(NamedTuple):
    """Windows of a rollout at one moment. A mark is a text that is another one once such a window was written."""

    windows: Sequence[Window]
    """From ``since`` on, oldest first."""
    mark_before: str
    """Of those before ``since``."""
    mark_settled: str
    """Of those before ``settled``."""


class WindowLog(Protocol):
    """What the log shippers added up. Raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def of_rollout(self, rollout_id: int, since: float = 0.0) -> Sequence[Window]:
        """Return the windows of a rollout that start at ``since`` or later, oldest first."""
        ...

    async def latest_of_rollout(self, rollout_id: int, since: float, settled: float) -> LatestWindows:
        """Return the same with the marks of what starts before ``since`` and before ``settled``."""
        ...

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        """Return the windows of these versions that start in ``[since, until)`` (seconds since the epoch)."""
        ...

    async def forget(self, before: float, at_most: int) -> int:
        """Delete windows that start before, and return how many.

        Those of an open rollout stay for as long again as its plan may take, and go a day at a time.
        """
        ...
