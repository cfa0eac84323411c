"""Idle versions: loaded, wanted by nothing, and kept for a while, so that who wants one again does not wait for it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place

CALL_NOTED_SECONDS: Final = 60.0
"""A call moves the begin of idleness that is recorded when it is so much later: it is not written for each."""


class Idle(NamedTuple):
    """How long a version has been idle at a server."""

    recorded_seconds: float
    """Since the moment that is recorded."""
    unused_seconds: float
    """Since that moment or the last call to the version, whichever is later."""

    @property
    def was_called(self) -> bool:
        """Whether a later moment is to be recorded."""
        return self.recorded_seconds - self.unused_seconds > CALL_NOTED_SECONDS


def idle_places(
    versions: Iterable[ManagedVersion],
    servers: Iterable[GroupMember],
    unwanted: Collection[Place],
    idle: Mapping[Place, Idle],
    *,
    limit_seconds: float,
) -> frozenset[Place]:
    """Return where a version stays loaded that nothing wants there.

    Args:
        versions: All that agents load. One that was moved to another group does not stay where it was.
        servers: Those whose agents have reported.
        unwanted: Where servers have versions that were wanted there, or idle, and are wanted no more.
        idle: What is known of those that were idle before.
        limit_seconds: How long after it became idle, or after its last call, a version stays; 0: not at all.
    """
    groups = {server.name: server.group_name for server in servers}
    # A replica that is one too many does not idle: others have the version, which is wanted still.
    may_idle = {one.version_id: one.group_name for one in versions if one.may_idle and one.why is None}
    begins = Idle(0.0, 0.0)
    return frozenset(
        (version_id, server)
        for version_id, server in unwanted
        if version_id in may_idle
        and may_idle[version_id] == groups.get(server)
        and idle.get((version_id, server), begins).unused_seconds < limit_seconds
    )
