"""Tells which servers are lost, so that versions which only they have are placed on others."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from understudy.core.loading.wanted import SILENT_SECONDS, GroupMember

LOST_SECONDS: Final = 60.0
"""After so long without its agent, or without the server, what it has does not count: a restart is over sooner."""


class LostServers:
    """Notes since when servers have been silent or away, by the monotonic clock ``now``.

    A new leader begins anew. What it finds counts only with a :class:`SilenceWatch` that has been long enough.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[str, float] = {}

    def of(self, servers: Iterable[GroupMember]) -> Collection[str]:
        """Return the names of those that have been gone for ``LOST_SECONDS``."""
        now = self._now()
        unwell = {server.name: server for server in servers if not (server.is_live and server.answers)}
        self._since = {name: self._since.get(name, now) for name in unwell}
        # One that is not live has been silent for SILENT_SECONDS when that is seen.
        known = {name: LOST_SECONDS if one.is_live else LOST_SECONDS - SILENT_SECONDS for name, one in unwell.items()}
        return frozenset(name for name, seconds in known.items() if now - self._since[name] >= seconds)
