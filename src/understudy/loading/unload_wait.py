"""How long an unload waits after a version's endpoint was taken back: until no call can reach the version any more."""

from collections.abc import Callable
from math import inf
from typing import Final

import structlog

from understudy.core.loading.state import LoadingState
from understudy.ports.loading.agent_store import VersionAtServer

_log = structlog.get_logger(__name__)

SILENT_SECONDS: Final = 900.0
"""How long an unload waits for a proxy that has not said that it has read the removal of the endpoint."""
LAST_CALLS_SECONDS: Final = 1.0
"""What an unload waits beyond the version's last calls, for which its time-out stands where proxies do not tell."""


class UnloadWait:
    """What one agent waits for, by the monotonic clock ``now``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._quiet_since: dict[int, float] = {}
        """Since when every proxy has read that a version's endpoint is gone."""

    def is_over(self, version: VersionAtServer) -> bool:
        """Whether no call can reach a version any more, by what proxies have said."""
        record = version.record
        if record is None or record.state is not LoadingState.QUIESCING:
            self._quiet_since.pop(version.version_id, None)
            return False
        if record.unread_proxies and record.removed_seconds < SILENT_SECONDS:
            return False
        if record.unread_proxies and version.version_id not in self._quiet_since:
            said = f"{record.unread_proxies} proxies have not said for {SILENT_SECONDS:g} s that they read its removal"
            _log.warning("agent.unloads_unconfirmed", model=version.model_name, version=version.version, why=said)
        self._quiet_since.setdefault(version.version_id, self._now())
        return self.seconds_left(version) <= 0

    def seconds_left(self, version: VersionAtServer) -> float:
        """Return how long its last calls still have; infinity while proxies may send new ones."""
        since = self._quiet_since.get(version.version_id, inf)
        calls_are_over = version.record is not None and version.record.calls_are_over
        calls_seconds = 0.0 if calls_are_over else version.timeout_seconds
        return since + calls_seconds + LAST_CALLS_SECONDS - self._now()

    def clear(self) -> None:
        """Begin anew: another agent may have been at work meanwhile."""
        self._quiet_since.clear()
