"""Which refusals for want of room (``E214``) send a version to another server, and which servers it is kept from."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from understudy.core.loading.wanted import Place
from understudy.ports.loading.placement_store import LoadingFacts

T = TypeVar("T")
GIVING_WAY_SECONDS: Final = 60.0
"""After a server's last idle version began to leave: it is unloaded, and the one that needs its memory tried again."""
REFUSED_SECONDS: Final = 300.0
"""How long a version is not offered again to a server that had no room for it, though by its rows the server has."""


class RoomRefusals:
    """Notes refusals by the monotonic clock ``now``.

    A new leader begins anew: it offers each version once more.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._idle_at: dict[str, float] = {}
        """When a server last had an idle version."""
        self._refused_at: dict[Place, float] = {}

    def note(self, facts: LoadingFacts) -> None:
        """Take down what one reading has found."""
        now = self._now()
        idle = {server: now for version_id, server in facts.idle if (version_id, server) in facts.available}
        self._idle_at = _younger(self._idle_at, now - GIVING_WAY_SECONDS) | idle
        self._refused_at = _younger(self._refused_at, now - REFUSED_SECONDS) | dict.fromkeys(facts.without_room, now)

    def standing(self, facts: LoadingFacts) -> Collection[Place]:
        """Return the refusals that are not about to end: where idle versions are they make room for wanted ones."""
        return {place for place in facts.without_room if place[1] not in self._idle_at}

    @property
    def lately(self) -> Collection[Place]:
        """Where there was no room within ``REFUSED_SECONDS``."""
        return self._refused_at.keys()


def _younger(times: Mapping[T, float], since: float) -> dict[T, float]:
    return {what: at for what, at in times.items() if at >= since}
