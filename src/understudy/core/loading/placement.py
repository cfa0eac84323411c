"""Places versions that are to be on some servers of their group: first fit, decreasing, into the fullest server.

Values in, values out: the same rows have the same result, so the monitor that leads next goes on from what is placed.

Source:
    First and best fit decreasing need at most 11/9 of the fewest bins, and 6/9 more: Dósa, "The tight bound of first
    fit decreasing bin-packing algorithm" (2007). A better packing is not sought by moving what is placed.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from understudy.core.loading.memory import FILLED_AT_MOST, PAD_BYTES
from understudy.core.loading.wanted import RANK, GroupMember, ManagedVersion, Place

MAX_MOVES: Final = 2
"""Moves that a tick begins; of each model one at most. A copy that no server has is no move, and has no bound."""


class Spread(NamedTuple):
    """Which server is to have which version, of those that are to be on some."""

    placed: frozenset[Place]
    """While a version moves it is at both servers: the old copy leaves once the new one is available."""
    unplaced: Mapping[int, int]
    """Versions with fewer copies than they should have, and how many fewer: no server has room for more."""
    moves: int
    """Copies that were given another server, though the one that they have is there."""


class SpreadFacts(NamedTuple):
    """What has become of placements."""

    placed: Collection[Place] = ()
    """What was decided before."""
    available: Collection[Place] = ()
    """Where live servers have it."""
    refused: Collection[Place] = ()
    """Where a server had no room for it."""
    sizes: Mapping[Place, int] = {}
    """What a version takes of a server's memory, in bytes: measured there, or expected by an agent that had no room."""
    lost: Collection[str] = ()
    """Servers that have been silent, or away, for so long that what they have does not count."""


class _Copy(NamedTuple):
    """A version that is to be on some servers."""

    version_id: int
    model_name: str
    group_name: str
    rank: int
    replicas: int
    """How many copies there are to be."""
    size: int | None
    """What a further copy is expected to take: the most that any takes; ``None``: not known."""

    @property
    def charged_bytes(self) -> int:
        """Return what a further copy is counted with."""
        return PAD_BYTES if self.size is None else self.size


@dataclass(slots=True, eq=False)
class _Room:
    """A server, with what is left of its memory."""

    server: GroupMember
    is_lost: bool
    free_bytes: int
    """0 where it is not known how much there is: then versions are counted."""
    has: list[tuple[int, int, int]] = field(default_factory=list)
    """Rank, bytes and id of each of its copies whose size is known."""
    versions: int = 0
    guessed_bytes: int = 0
    """What it is charged with for versions whose size is not known."""

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def key(self) -> tuple[int, str]:
        """The fullest first; by the versions that it has where its memory is not known."""
        return (-self.versions if self.server.room_bytes is None else self.free_bytes), self.name

    def charge(self, size: int | None) -> None:
        self.versions += 1
        self.free_bytes -= PAD_BYTES if size is None else size
        self.guessed_bytes += PAD_BYTES if size is None else 0

    def has_copy(self, copy: _Copy, size: int | None) -> None:
        self.charge(size)
        if size is not None:
            self.has.append((copy.rank, size, copy.version_id))


def spread(
    versions: Iterable[ManagedVersion],
    servers: Collection[GroupMember],
    facts: SpreadFacts,
    counts: Mapping[int, int] = {},
    *,
    max_moves: int = MAX_MOVES,
) -> Spread:
    """Return where each copy of each version that is to be on some servers is to be.

    What is placed stays where it is, unless its server is lost, had no room for it, or has become too small. More
    important versions are placed first, and of equal ones the larger.

    Args:
        versions: All that agents load. Those without ``replicas`` are on every server of their group, and take room.
        servers: Those whose agents have reported.
        facts: What has become of placements.
        counts: How many copies versions are to have by their calls; others have the fewest that they may.
        max_moves: How many moves this begins at the most.
    """
    wanted = [version for version in versions if version.why is not None]
    most: dict[int, int] = {}
    for (version_id, _), size in facts.sizes.items():
        most[version_id] = max(size, most.get(version_id, 0))
    copies = sorted(
        (_copy_of(version, counts, most) for version in wanted if version.replicas is not None),
        key=lambda one: (one.rank, -one.charged_bytes, one.version_id),
    )
    lost = {server.name for server in servers if server.is_draining}.union(facts.lost)
    rooms = {server.name: _Room(server, server.name in lost, server.room_bytes or 0) for server in servers}
    _charge_everywhere([version for version in wanted if version.replicas is None], rooms.values(), facts, most)
    homes = _homes(copies, rooms, facts)
    packer = _Packer(rooms.values(), facts, max_moves)
    for copy in copies:
        packer.add(copy, homes.get(copy.version_id, ()))
    return Spread(frozenset(packer.placed), packer.unplaced, packer.moves)


def _copy_of(version: ManagedVersion, counts: Mapping[int, int], most: Mapping[int, int]) -> _Copy:
    assert version.why is not None
    assert version.replicas is not None
    count = counts.get(version.version_id, version.replicas.least)
    group, size = version.group_name, most.get(version.version_id)
    return _Copy(version.version_id, version.model_name, group, RANK[version.why], count, size)


def _charge_everywhere(
    versions: Iterable[ManagedVersion], rooms: Iterable[_Room], facts: SpreadFacts, most: Mapping[int, int]
) -> None:
    """Charge servers with the versions that each one of a group has."""
    members: dict[str, list[_Room]] = {}
    for room in rooms:
        members.setdefault(room.server.group_name, []).append(room)
    for version in versions:
        for room in members.get(version.group_name, ()):
            room.charge(facts.sizes.get((version.version_id, room.name), most.get(version.version_id)))


def _homes(
    copies: Iterable[_Copy], rooms: Mapping[str, _Room], facts: SpreadFacts
) -> Mapping[int, Sequence[tuple[_Room, bool]]]:
    """Return the servers that have each version, and whether it may stay there; and charge them with it."""
    wanted = {copy.version_id: copy for copy in copies}
    found: dict[int, list[_Room]] = {}
    for place in sorted(facts.placed):
        copy, room = wanted.get(place[0]), rooms.get(place[1])
        if copy is not None and room is not None:
            found.setdefault(place[0], []).append(room)
            if place not in facts.refused:
                room.has_copy(copy, facts.sizes.get(place, copy.size))
    too_much = _too_much(rooms.values())
    return {
        version_id: [(room, (version_id, room.name) not in too_much) for room in its]
        for version_id, its in found.items()
    }


def _too_much(rooms: Iterable[_Room]) -> frozenset[Place]:
    """Return the copies that have to leave servers which they have outgrown: the least urgent, the smallest first.

    A server is filled to nine tenths, and has outgrown that once the whole is exceeded: measuring is rough.
    """
    leaving = set()
    for room in rooms:
        if room.server.room_bytes is None:
            continue
        excess = -room.free_bytes - room.guessed_bytes
        if excess <= room.server.room_bytes * (1 / FILLED_AT_MOST - 1):
            continue
        for _, size, version_id in sorted(room.has, key=lambda one: (-one[0], one[1], one[2])):
            if excess <= 0:
                break
            leaving.add((version_id, room.name))
            excess -= size
    return frozenset(leaving)


class _Packer:
    """Places one version after the other."""

    def __init__(self, rooms: Iterable[_Room], facts: SpreadFacts, max_moves: int) -> None:
        self.placed: set[Place] = set()
        self.unplaced: dict[int, int] = {}
        self.moves = 0
        self._facts = facts
        self._max_moves = max_moves
        self._moved_models: set[str] = set()
        self._open: dict[tuple[str, bool], list[tuple[int, str, _Room]]] = {}
        """By group, and whether their memory is known: servers that take further versions, the fullest first."""
        for room in rooms:
            if room.server.is_live and room.server.answers and not room.is_lost:
                insort(self._open.setdefault(_shelf(room), []), (*room.key, room))

    def add(self, copy: _Copy, homes: Sequence[tuple[_Room, bool]]) -> None:
        """Decide on one version."""
        rooms = [room for room, _ in homes]
        outgrown = [room for room, fits in homes if not fits]
        refused = [room for room in rooms if (copy.version_id, room.name) in self._facts.refused]
        gone = [room for room in rooms if room.is_lost or room.server.group_name != copy.group_name]
        leaving = [room for room in rooms if room in outgrown or room in gone]
        staying = self._without_surplus(copy, [room for room in rooms if room not in leaving and room not in refused])
        # What has outgrown its server is there, and is called: it moves in its turn.
        may_move = [room for room in outgrown if room not in gone and room not in refused]
        moving = min(copy.replicas - len(staying), len(may_move))
        new = self._place(copy, rooms, copy.replicas - len(staying) - moving)
        short = copy.replicas - len(staying) - moving - len(new)
        if moving and not short and self.moves < self._max_moves and copy.model_name not in self._moved_models:
            moved = self._place(copy, [*rooms, *new], 1)
            self.moves += len(moved)
            self._moved_models.update([copy.model_name] if moved else [])
            new += moved
        ready = sum(self._is_available(copy, room) for room in staying)
        leaving.sort(key=lambda room: (not self._is_available(copy, room), room.name))
        waits = [room for room in refused if room not in leaving][: max(0, short)]
        kept = [*staying, *new, *waits, *leaving[: max(0, copy.replicas - ready)]]
        self.placed.update((copy.version_id, room.name) for room in kept)
        if short > 0:
            self.unplaced[copy.version_id] = short

    def _is_available(self, copy: _Copy, room: _Room) -> bool:
        return (copy.version_id, room.name) in self._facts.available

    def _without_surplus(self, copy: _Copy, rooms: Sequence[_Room]) -> list[_Room]:
        """Return the copies to keep: the available ones, on the fullest servers, so that others may become empty."""
        if len(rooms) <= copy.replicas:
            return list(rooms)
        return sorted(rooms, key=lambda room: (not self._is_available(copy, room), room.key))[: copy.replicas]

    def _place(self, copy: _Copy, has: Sequence[_Room], count: int) -> list[_Room]:
        """Return up to ``count`` servers that take a further copy, and charge them with it."""
        found: list[_Room] = []
        while len(found) < count:
            room = self._best_fit(copy, [*has, *found])
            if room is None:
                break
            shelf = self._open[_shelf(room)]
            del shelf[bisect_left(shelf, room.key)]
            room.charge(copy.size)
            insort(shelf, (*room.key, room))
            found.append(room)
        return found

    def _best_fit(self, copy: _Copy, has: Sequence[_Room]) -> _Room | None:
        """Return the fullest server with room for it; of unknown size, and by count, the emptiest."""
        known, counted = (self._open.get((copy.group_name, is_known), ()) for is_known in (True, False))
        fitting = known[::-1] if copy.size is None else known[bisect_left(known, (copy.size,)) :]
        for candidates in (fitting, counted[::-1]):
            for _, _, room in candidates:
                if room not in has:
                    return room
        return None


def _shelf(room: _Room) -> tuple[str, bool]:
    return room.server.group_name, room.server.room_bytes is not None
