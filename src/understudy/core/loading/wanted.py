"""Wanted versions (TF Serving: aspired): which versions the servers of a group are to have, and why."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from understudy.core.loading.replicas import Replicas

SILENT_SECONDS: Final = 30
"""After so long without a report from its agent, which comes every 5 s, it is not known what a server has."""


class Why(StrEnum):
    """Why a version is wanted; the first of several counts, and is loaded first."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    SHADOW = "shadow"
    ARM = "arm"
    ROLLOUT = "rollout"
    """Either side of a rollout that is not over."""
    PREVIOUS_CHAMPION = "previous champion"
    """What a rollback brings back."""
    ASKED = "asked for"
    """By registration or ``understudy version load``, for a time or for good."""

    @classmethod
    def _missing_(cls, value: object) -> "Why":
        """Take a later release's word, or one of a row by hand, for the least of them: a row must not stop an agent."""
        del value
        return cls.ASKED


RANK: Mapping[Why, int] = {why: rank for rank, why in enumerate(Why)}


@dataclass(frozen=True, slots=True)
class ManagedVersion:
    """A version that agents are to load, with all the reasons that hold now."""

    version_id: int
    group_name: str
    reasons: frozenset[Why]
    may_idle: bool = False
    """Whether it stays loaded for a while once nothing wants it: unless a person had it unloaded, or it is retired."""
    is_called: bool = False
    """Whether it may idle, has no endpoint, and was called by its name within a quarter of an hour."""
    model_name: str = ""
    replicas: Replicas | None = None
    """On how many servers of the group it is to be; ``None``: on every one."""

    @property
    def why(self) -> Why | None:
        """The reason that counts; ``None``: the version is not wanted."""
        return min(self.reasons, key=RANK.__getitem__, default=None)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A model server whose agent reports."""

    name: str
    group_name: str
    is_live: bool = True
    """Whether its agent has reported within ``SILENT_SECONDS``."""
    answers: bool = True
    """Whether the server answers its agent."""
    room_bytes: int | None = None
    """Memory that its versions may take together; ``None``: its agent keeps no account."""
    is_draining: bool = False
    """Whether it is about to end: its agent takes its endpoints back."""


Place = tuple[int, str]
"""A version at a server: its id and the server's name."""
Placements = Mapping[Place, Why]
"""Why a version is to be at a server."""


def wanted_placements(
    versions: Iterable[ManagedVersion],
    servers: Iterable[GroupMember],
    placed: Collection[Place],
    available: Collection[Place],
) -> Placements:
    """Return what is wanted where: every server of a group is to have every wanted version of the group.

    Those that are to be on some servers alone are not in it: see ``core.loading.placement``. A version that was moved
    to another group stays where it was ``placed`` until one server of that has it (``available``): it is served all the
    while.
    """
    members: dict[str, list[str]] = {}
    for server in servers:
        members.setdefault(server.group_name, []).append(server.name)
    before: dict[int, list[str]] = {}
    for version_id, name in placed:
        before.setdefault(version_id, []).append(name)
    wanted = {}
    for version in versions:
        if version.why is None or version.replicas is not None:
            continue
        names = members.get(version.group_name, [])
        is_there = any((version.version_id, name) in available for name in names)
        for name in names if is_there else dict.fromkeys([*names, *before.get(version.version_id, [])]):
            wanted[version.version_id, name] = version.why
    return wanted


def missing_servers(
    versions: Iterable[ManagedVersion],
    servers: Iterable[GroupMember],
    available: Collection[Place],
    without_room: Collection[Place] = (),
    placed: Collection[Place] = (),
) -> Mapping[int, int]:
    """Return how many live servers of its group do not have a wanted version; 1 where the group has none.

    Of a version that is to be on some of them it is how many fewer have it than should: where it is ``placed``, and at
    the least on as many as it says. Versions that all have are left out. A server that had no room for a champion
    before does not count: that one leaves where a further version needs its memory.
    """
    live: dict[str, list[str]] = {}
    for server in servers:
        if server.is_live:
            live.setdefault(server.group_name, []).append(server.name)
    replicas = Counter(version_id for version_id, _ in placed)
    missing = {}
    for version in versions:
        names = live.get(version.group_name, [])
        may_be_without = without_room if version.why is Why.PREVIOUS_CHAMPION else ()
        places = [(version.version_id, name) for name in names]
        without = sum(not (place in available or place in may_be_without) for place in places) if names else 1
        if version.replicas is not None and names:
            count = min(max(replicas[version.version_id], version.replicas.least), version.replicas.most)
            without = max(count - (len(names) - without), 0)
        if version.why is not None and without:
            missing[version.version_id] = without
    return missing
