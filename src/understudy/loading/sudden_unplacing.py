"""Notices that most of an agent's versions are placed no more at once: an emptied table is a mistake first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from understudy.core.loading.wanted import Why
from understudy.ports.loading.agent_store import VersionAtServer
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

MANY_VERSIONS: Final = 4
"""Fewer are what people and rollouts do."""
DOUBT_SECONDS: Final = 5.0
"""How long it is doubted: the leader, which compares each second, writes again what is wanted."""


class SuddenUnplacing:
    """What one agent was told to have, by the monotonic clock ``now``; ``telemetry`` gets how often most was gone.

    Where all that is gone was idle, could not be called, or is asked for no more, it is doubted too, and not counted:
    versions that were registered together end together.
    """

    def __init__(self, telemetry: Telemetry, now: Callable[[], float]) -> None:
        self._telemetry = telemetry
        self._now = now
        self._placed: frozenset[int] = frozenset()
        """At the last round that was not doubted."""
        self._in_use: Mapping[int, Why | None] = {}
        """Why those of them were wanted that proxies could call."""
        self._since: float | None = None

    def doubted(self, versions: Sequence[VersionAtServer]) -> frozenset[int]:
        """Return the versions that are gone and are not to leave yet: more than half of all, and four at least."""
        gone = self._placed - {version.version_id for version in versions if version.why is not None}
        if len(gone) < MANY_VERSIONS or 2 * len(gone) <= len(self._placed):
            self._believe(versions)
            return frozenset()
        if self._since is None:
            self._since = self._now()
            _log.warning("agent.many_unplaced", gone=len(gone), of=len(self._placed), waits_seconds=DOUBT_SECONDS)
            asked_for = {version.version_id for version in versions if version.is_asked_for}
            if any(one in asked_for or self._in_use[one] is not Why.ASKED for one in gone & self._in_use.keys()):
                self._telemetry.count("many_unplaced_total")
        if self._now() - self._since < DOUBT_SECONDS:
            return gone
        self._believe(versions)
        return frozenset()

    def clear(self) -> None:
        """Begin anew: another agent may have been at work meanwhile."""
        self._believe(())

    def _believe(self, versions: Sequence[VersionAtServer]) -> None:
        placed = [version for version in versions if version.why is not None]
        self._placed = frozenset(version.version_id for version in placed)
        self._in_use = {one.version_id: one.why for one in placed if one.is_wanted and one.has_endpoint}
        self._since = None
