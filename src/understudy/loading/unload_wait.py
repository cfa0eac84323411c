"""How long an unload waits after a version's endpoint was taken back: until no call can reach the version any more."""

from collections.abc import Callable
from math import inf
from typing import Final

import structlog

from understudy.core.loading.state import LoadingState
from understudy.ports.loading.agent_store import LoadingRecord, VersionAtServer

_log = structlog.get_logger(__name__)

SILENT_SECONDS: Final = 900.0
"""How long an unload waits for a proxy that says nothing any more, and has not read the removal of the endpoint."""
LAST_CALLS_SECONDS: Final = 1.0
"""What an unload waits beyond the version's last calls, for which its time-out stands where proxies do not tell."""


class UnloadWait:
    """What one agent waits for, by the monotonic clock ``now``."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._quiet_since: dict[int, float] = {}
        """Since when every proxy has read that a version's endpoint is gone."""
        self._waited_since: dict[int, float] = {}
        """Since when this agent waits: Postgres' clock may be set forward meanwhile."""
        self._told: set[int] = set()

    def is_over(self, version: VersionAtServer) -> bool:
        """Whether no call can reach a version any more, by what proxies have said."""
        record = version.record
        if record is None or record.state is not LoadingState.QUIESCING:
            self._quiet_since.pop(version.version_id, None)
            self._waited_since.pop(version.version_id, None)
            self._told.discard(version.version_id)
            return False
        waited = self._now() - self._waited_since.setdefault(version.version_id, self._now())
        if record.unread_proxies and waited >= SILENT_SECONDS:
            self._tell_unread(version, record)
        if record.reporting_proxies or (record.unread_proxies and waited < SILENT_SECONDS):
            return False
        self._quiet_since.setdefault(version.version_id, self._now())
        return self.seconds_left(version) <= 0

    def _tell_unread(self, version: VersionAtServer, record: LoadingRecord) -> None:
        """Say once who has not confirmed a removal, and what becomes of the unload."""
        if version.version_id not in self._told:
            self._told.add(version.version_id)
            said = f"{record.unread_proxies} proxies have not said for {SILENT_SECONDS:g} s that they read its removal"
            event = "agent.unload_waits" if record.reporting_proxies else "agent.unloads_unconfirmed"
            _log.warning(event, model=version.model_name, version=version.version, why=said)

    def seconds_left(self, version: VersionAtServer) -> float:
        """Return how long its last calls still have; infinity while proxies may send new ones."""
        since = self._quiet_since.get(version.version_id, inf)
        calls_are_over = version.record is not None and version.record.calls_are_over
        calls_seconds = 0.0 if calls_are_over else version.timeout_seconds
        return since + calls_seconds + LAST_CALLS_SECONDS - self._now()

    def clear(self) -> None:
        """Begin anew: another agent may have been at work meanwhile."""
        self._quiet_since.clear()
        self._waited_since.clear()
        self._told.clear()
