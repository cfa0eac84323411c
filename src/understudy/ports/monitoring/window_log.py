"""Counted windows of fifteen seconds, by version."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import NamedTuple, Protocol

from understudy.core.windows.window import Window

BLOCK_SECONDS = 900
"""Windows are marked by blocks of this length, the starts of which are its multiples."""
STEP_SECONDS = 60
"""The last block grows while its rollout goes on: of what is younger than the block's start, marks are this fine."""
MARKED_SECONDS = 86_400
"""The longest time of which the marks are read at once."""


def window_block_start(start: float) -> int:
    """Return the start of the block of counted windows that holds the window which starts at ``start``."""
    return int(start // BLOCK_SECONDS) * BLOCK_SECONDS


class Marks(NamedTuple):
    """What was written of a rollout. A mark is a text that is another one once a window of its block was written."""

    marks: Mapping[int, str]
    """By the start of the block; blocks without windows have none."""
    until: int
    """Those of blocks that start later were not read."""


class LatestWindows(NamedTuple):
    """What may have changed of a rollout, at one moment."""

    windows: Sequence[Window]
    """From ``settled`` on, oldest first; none while there are older marks that were not read."""
    marks: Marks
    """Of those before ``settled``; of the block that holds it, by steps of :data:`STEP_SECONDS` instead of at once."""


class WindowLog(Protocol):
    """What the log shippers added up. Raises ``RegistryUnavailable`` and ``MigrationNeeded``.

    Windows are given back without their slices, which take as long to read as all else of them, and which one job of
    the monitor wants. That job reads them with :meth:`slices_of_rollout`.
    """

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which all calls share a connection, which is cheaper where there are many."""

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = inf) -> Sequence[Window]:
        """Return the windows of a rollout that start in ``[since, until)``, oldest first."""

    async def slices_of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        """Return the same with their slices, and without their buckets and histograms."""

    async def marks_of_rollout(self, rollout_id: int, since: int, until: int) -> Marks:
        """Return the marks of the windows that start in ``[since, until)``, of :data:`MARKED_SECONDS` at most.

        ``since`` is the start of a block. The time counts from the first window on.
        """

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        """Return the same up to ``settled``, and when it has come there, the windows from ``settled`` on.

        A window that was read before and has not changed may be the same object, and one that has changed is another.
        """

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        """Return the windows of these versions that start in ``[since, until)`` (seconds since the epoch)."""

    async def forget(self, before: float, at_most: int) -> int:
        """Delete windows that start before, and return how many.

        Those of an open rollout stay for as long again as its plan may take, and go a day at a time.
        """
