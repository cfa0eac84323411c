"""What the monitor that leads reads to decide which server has which version, and the decisions."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from understudy.core.loading.idle import Idle
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place, Placements
from understudy.ports.monitoring.lease import Epoch


class LoadingFacts(NamedTuple):
    """Versions that agents are to load, servers, what was decided before, and what has become of that."""

    versions: Sequence[ManagedVersion]
    servers: Sequence[GroupMember]
    placed: Placements
    available: Collection[Place]
    """Versions that servers have, with the servers' names; without servers whose agent is silent."""
    names: Mapping[int, tuple[str, str]]
    """The model and the label of each version, by its id."""
    idle: Mapping[Place, Idle] = {}
    """Those of ``placed`` that nothing wants any more."""
    read_at: float = 0.0
    """Postgres' time then, in seconds since the epoch."""
    without_room: Collection[Place] = frozenset()
    """Versions that servers had no room for at their last try (E214), with the servers' names."""
    sizes: Mapping[Place, int] = {}
    """What a version takes of a server's memory, in bytes: measured there, or expected where there was no room."""
    lately_removed: Collection[int] = frozenset()
    """Versions of which a server drops a replica, or has dropped one within ``core.loading.replicas.FALL_SECONDS``."""


class PlacementStore(Protocol):
    """Every call raises ``RegistryUnavailable`` when Postgres does not answer in time."""

    async def read(self) -> LoadingFacts:
        """Return all of it, of one moment."""

    async def decide(
        self, wanted: Placements, gone: Collection[Place], epoch: Epoch, *, idle: Collection[Place] = ()
    ) -> None:
        """Write decisions that are new or have another reason, and delete those in ``gone``.

        Those in ``idle`` have been idle since now, or, where they were idle before, since their last call.

        Raises:
            LeadershipLost: Another monitor leads; nothing was written.
        """

    async def drop_silent_servers(self, epoch: Epoch) -> Sequence[str]:
        """Take the endpoints of silent servers back where another endpoint serves the version; return whose.

        Raises:
            LeadershipLost: Another monitor leads; nothing was written.
        """

    async def close(self) -> None:
        """Close the connection."""
