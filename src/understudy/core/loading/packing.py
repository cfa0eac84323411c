"""Packs versions into the memory of a group's model servers: bin packing by best fit, decreasing, which moves little.

For groups whose versions do not all fit one server. Values in, values out: the same input has the same result, so the
monitor that leads next goes on from what is placed.

Source:
    First and best fit decreasing need at most 11/9 of the fewest bins, and 6/9 more: Dósa, "The tight bound of first
    fit decreasing bin-packing algorithm" (2007). A better packing is not sought by moving what is placed.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ADMITTED_RATIO: Final = 0.9
"""Share of a server's memory that its versions may take: what is measured from beside a process is rough."""
MAX_MOVES: Final = 2
"""Moves that a tick begins; of each model one at most. A version that has no place is no move, and has no bound."""


@dataclass(frozen=True, slots=True)
class Member:
    """A model server of a group."""

    name: str
    group_name: str
    memory_bytes: int
    zone: str = ""
    """Copies of a version go to different ones, as far as there are some."""
    takes_new: bool = True
    """Whether versions are placed on it that it does not have; not on one that is cordoned."""
    is_draining: bool = False
    """Whether what it has is moved to others."""


@dataclass(frozen=True, slots=True)
class SizedVersion:
    """A wanted version, and the memory that each of its copies takes."""

    version_id: int
    model_name: str
    group_name: str
    memory_bytes: int
    replicas: int = 1
    rank: int = 0
    """The lower, the sooner it is placed (``core.loading.wanted.RANK``)."""


Place = tuple[int, str]
"""A version's id and a server's name."""


class Packing(NamedTuple):
    """Which server is to have which version."""

    placed: frozenset[Place]
    """While a version moves it is at both servers: the old copy leaves once the new one is available."""
    unplaced: Sequence[int]
    """Versions with fewer copies than they should have: nothing has room for more."""
    moves: int
    """Copies that were given another server, though the one that they have is there."""


@dataclass(slots=True, eq=False)
class _Room:
    """A member, with what is left of its memory."""

    member: Member
    free_bytes: int
    has: list[SizedVersion] = field(default_factory=list)

    def may_keep(self, version: SizedVersion, overfull: Collection[Place]) -> bool:
        return not self.member.is_draining and (version.version_id, self.member.name) not in overfull


def pack(
    versions: Iterable[SizedVersion],
    members: Iterable[Member],
    placed: Collection[Place],
    available: Collection[Place],
    *,
    max_moves: int = MAX_MOVES,
) -> Packing:
    """Return where each copy of each version is to be.

    What is placed stays where it is, unless its server drains, has gone, or has become too small for it.

    Args:
        versions: Those that are wanted.
        members: The servers whose agents report.
        placed: What was decided before.
        available: Where agents have loaded it.
        max_moves: How many moves this begins at the most; a version that has no place yet is no move.
    """
    ordered = sorted(versions, key=lambda one: (one.rank, -one.memory_bytes, one.version_id))
    rooms = {member.name: _Room(member, int(member.memory_bytes * ADMITTED_RATIO)) for member in members}
    copies = _copies(ordered, rooms, placed)
    overfull = _overfull(rooms.values())
    packer = _Packer(rooms.values(), overfull, frozenset(available), max_moves)
    for version in ordered:
        packer.add(version, copies.get(version.version_id, ()))
    return Packing(frozenset(packer.placed), tuple(packer.unplaced), packer.moves)


def _copies(
    versions: Iterable[SizedVersion], rooms: dict[str, _Room], placed: Collection[Place]
) -> dict[int, list[_Room]]:
    """Return the rooms that have each version, and charge them with it."""
    wanted = {version.version_id: version for version in versions}
    found: dict[int, list[_Room]] = {}
    for version_id, name in sorted(placed):
        version, room = wanted.get(version_id), rooms.get(name)
        if version is not None and room is not None and room.member.group_name == version.group_name:
            found.setdefault(version_id, []).append(room)
            room.free_bytes -= version.memory_bytes
            room.has.append(version)
    return found


def _overfull(rooms: Iterable[_Room]) -> frozenset[Place]:
    """Return the copies that have to leave servers which they have outgrown: the least urgent, the smallest first."""
    leaving = set()
    for room in rooms:
        excess = -room.free_bytes
        for version in sorted(room.has, key=lambda one: (-one.rank, one.memory_bytes, one.version_id)):
            if excess <= 0:
                break
            leaving.add((version.version_id, room.member.name))
            excess -= version.memory_bytes
    return frozenset(leaving)


class _Packer:
    """Places one version after the other."""

    def __init__(
        self, rooms: Iterable[_Room], overfull: Collection[Place], available: Collection[Place], max_moves: int
    ) -> None:
        self.placed: set[Place] = set()
        self.unplaced: list[int] = []
        self.moves = 0
        self._overfull = overfull
        self._available = available
        self._max_moves = max_moves
        self._moved_models: set[str] = set()
        self._open: dict[str, list[tuple[int, str, _Room]]] = {}
        """By group, the fullest first: what takes further versions."""
        for room in sorted(rooms, key=lambda one: (one.free_bytes, one.member.name)):
            if room.member.takes_new and not room.member.is_draining:
                self._open.setdefault(room.member.group_name, []).append((room.free_bytes, room.member.name, room))

    def add(self, version: SizedVersion, copies: Sequence[_Room]) -> None:
        """Decide on one version, whose ``copies`` are placed already."""
        staying = [room for room in copies if room.may_keep(version, self._overfull)]
        leaving = [room for room in copies if room not in staying]
        staying = self._without_surplus(version, staying)
        to_replace = min(version.replicas - len(staying), len(leaving))
        to_place = version.replicas - len(staying) - to_replace
        new = self._place(version, copies, to_place)
        if len(new) < to_place:
            self.unplaced.append(version.version_id)
        elif to_replace and self.moves < self._max_moves and version.model_name not in self._moved_models:
            moved = self._place(version, [*copies, *new], 1)
            self.moves += len(moved)
            self._moved_models.update([version.model_name] if moved else [])
            new += moved
        ready = sum((version.version_id, room.member.name) in self._available for room in staying)
        kept = [*staying, *new, *leaving[: max(0, version.replicas - ready)]]
        self.placed.update((version.version_id, room.member.name) for room in kept)

    def _without_surplus(self, version: SizedVersion, rooms: Sequence[_Room]) -> list[_Room]:
        """Return the copies to keep: the available ones, on the fullest servers, so that others may become empty."""
        if len(rooms) <= version.replicas:
            return list(rooms)

        def worth(room: _Room) -> tuple[bool, int, str]:
            is_available = (version.version_id, room.member.name) in self._available
            return not is_available, room.free_bytes, room.member.name

        return sorted(rooms, key=worth)[: version.replicas]

    def _place(self, version: SizedVersion, has: Sequence[_Room], count: int) -> list[_Room]:
        """Return up to ``count`` servers that take a further copy, and charge them with it."""
        found: list[_Room] = []
        while len(found) < count:
            room = self._best_fit(version, [*has, *found])
            if room is None:
                break
            self._charge(room, version.memory_bytes)
            found.append(room)
        return found

    def _best_fit(self, version: SizedVersion, has: Sequence[_Room]) -> _Room | None:
        """Return the fullest server with room for it, in a zone without a copy if there is one."""
        open_rooms = self._open.get(version.group_name, [])
        zones = {room.member.zone for room in has}
        elsewhere = None
        for _, _, room in open_rooms[bisect_left(open_rooms, (version.memory_bytes,)) :]:
            if room in has:
                continue
            if not zones or room.member.zone not in zones:
                return room
            elsewhere = elsewhere or room
        return elsewhere

    def _charge(self, room: _Room, memory_bytes: int) -> None:
        open_rooms = self._open[room.member.group_name]
        del open_rooms[bisect_left(open_rooms, (room.free_bytes, room.member.name))]
        room.free_bytes -= memory_bytes
        insort(open_rooms, (room.free_bytes, room.member.name, room))
