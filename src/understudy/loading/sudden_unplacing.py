"""Notices that most of an agent's versions are placed no more at once: an emptied table is a mistake first."""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from understudy.ports.loading.agent_store import VersionAtServer

_log = structlog.get_logger(__name__)

MANY_VERSIONS: Final = 4
"""Fewer are what people and rollouts do."""
DOUBT_SECONDS: Final = 5.0
"""How long it is doubted: the leader, which compares each second, writes again what is wanted."""


class SuddenUnplacing:
    """What one agent was told to have, by the monotonic clock ``now``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._placed: frozenset[int] = frozenset()
        """At the last round that was not doubted."""
        self._since: float | None = None

    def doubted(self, versions: Sequence[VersionAtServer]) -> frozenset[int]:
        """Return the versions that are gone and are not to leave yet: more than half of all, and four at least."""
        placed = frozenset(version.version_id for version in versions if version.why is not None)
        gone = self._placed - placed
        if len(gone) < MANY_VERSIONS or 2 * len(gone) <= len(self._placed):
            self._placed, self._since = placed, None
            return frozenset()
        if self._since is None:
            self._since = self._now()
            _log.warning("agent.many_unplaced", gone=len(gone), of=len(self._placed), waits_seconds=DOUBT_SECONDS)
        if self._now() - self._since < DOUBT_SECONDS:
            return gone
        self._placed, self._since = placed, None
        return frozenset()

    def clear(self) -> None:
        """Begin anew: another agent may have been at work meanwhile."""
        self._placed, self._since = frozenset(), None
