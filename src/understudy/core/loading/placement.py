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
"""Moves that a tick begins; of each model one at most. A replica that no server has is no move, and has no bound."""


class Packing(NamedTuple):
    """Which server is to have which version, of those that are to be on some."""

    placed: frozenset[Place]
    """While a version moves it is at both servers: the old replica leaves once the new one is available."""
    unplaced: Mapping[int, int]
    """By version: how many replicas it should have beyond those that servers have room for; without versions that have
    all."""
    moves: int
    """Replicas that were given another server, though the one that they have is there."""


class PlacementFacts(NamedTuple):
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
    refused_lately: Collection[Place] = ()
    """Where it had none a while ago: such a server comes last, else two that both refuse would have it in turns."""


class _Item(NamedTuple):
    """A version that is to be on some servers."""

    version_id: int
    model_name: str
    group_name: str
    rank: int
    replicas: int
    """How many it is to have, each on a server of its own."""
    size: int | None
    """What a further replica is expected to take, in bytes: the most that any takes; ``None``: not known."""
    avoided: frozenset[str] = frozenset()
    """Names of servers that get none."""

    @property
    def charged_bytes(self) -> int:
        """Return what a further replica is counted with."""
        return PAD_BYTES if self.size is None else self.size


class _Known(NamedTuple):
    """A replica whose size is known, in the order in which replicas leave a server that has become too small."""

    unimportance: int
    size: int
    version_id: int


@dataclass(slots=True, eq=False)
class _Bin:
    """A server, with what is left of its memory."""

    server: GroupMember
    is_lost: bool
    free_bytes: int
    """0 where it is not known how much there is: then versions are counted."""
    known: list[_Known] = field(default_factory=list)
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

    @property
    def peers(self) -> tuple[str, bool]:
        """What it is compared with: servers of its group, of known memory or not."""
        return self.server.group_name, self.server.room_bytes is not None

    def charge(self, size: int | None) -> None:
        self.versions += 1
        self.free_bytes -= PAD_BYTES if size is None else size
        self.guessed_bytes += PAD_BYTES if size is None else 0

    def hold(self, item: _Item, size: int | None) -> None:
        self.charge(size)
        if size is not None:
            self.known.append(_Known(-item.rank, size, item.version_id))


class _Replica(NamedTuple):
    """A replica that was placed before."""

    bin: _Bin
    is_available: bool
    was_refused: bool
    """Whether the server had no room for it."""
    is_gone: bool
    """Whether the server is lost, or of a group that the version has left."""
    is_outgrown: bool
    """Whether it has to leave, because the server has become too small for all that it has."""

    @property
    def leaves(self) -> bool:
        return self.is_gone or self.is_outgrown

    @property
    def stays(self) -> bool:
        return not (self.leaves or self.was_refused)

    @property
    def may_move(self) -> bool:
        """Whether it answers calls until its turn to move comes."""
        return self.is_outgrown and not (self.is_gone or self.was_refused)


def pack(
    versions: Iterable[ManagedVersion],
    servers: Collection[GroupMember],
    facts: PlacementFacts,
    counts: Mapping[int, int] = {},
    *,
    max_moves: int = MAX_MOVES,
) -> Packing:
    """Return where each replica of each version that is to be on some servers is to be.

    What is placed stays where it is, unless its server is lost, had no room for it, or has become too small. More
    important versions are placed first, and of equal ones the larger.

    Args:
        versions: All that agents load. Those without ``replicas`` are on every server of their group, and take room.
        servers: Those whose agents have reported.
        facts: What has become of placements.
        counts: How many replicas versions are to have by their calls; others have the fewest that they may.
        max_moves: How many moves this begins at the most.
    """
    wanted = [version for version in versions if version.why is not None]
    largest: dict[int, int] = {}
    for (version_id, _), size in facts.sizes.items():
        largest[version_id] = max(size, largest.get(version_id, 0))
    refusing: dict[int, list[str]] = {}
    for version_id, name in facts.refused_lately:
        refusing.setdefault(version_id, []).append(name)
    items = sorted(
        (_item_of(version, counts, largest, refusing) for version in wanted if version.replicas is not None),
        key=lambda one: (one.rank, -one.charged_bytes, one.version_id),
    )
    lost = {server.name for server in servers if server.is_draining}.union(facts.lost)
    bins = {server.name: _Bin(server, server.name in lost, server.room_bytes or 0) for server in servers}
    _charge_everywhere([version for version in wanted if version.replicas is None], bins.values(), facts, largest)
    placed = _placed_before(items, bins, facts)
    packer = _Packer(bins.values(), max_moves)
    for item in items:
        packer.add(item, placed.get(item.version_id, ()))
    return Packing(frozenset(packer.placed), packer.unplaced, packer.moves)


def _item_of(
    version: ManagedVersion,
    counts: Mapping[int, int],
    largest: Mapping[int, int],
    refusing: Mapping[int, Collection[str]],
) -> _Item:
    assert version.why is not None
    assert version.replicas is not None
    count = counts.get(version.version_id, version.replicas.least)
    group, size = version.group_name, largest.get(version.version_id)
    avoided = frozenset(refusing.get(version.version_id, ()))
    return _Item(version.version_id, version.model_name, group, RANK[version.why], count, size, avoided)


def _charge_everywhere(
    versions: Iterable[ManagedVersion], bins: Iterable[_Bin], facts: PlacementFacts, largest: Mapping[int, int]
) -> None:
    """Charge servers with the versions that each one of a group has."""
    members: dict[str, list[_Bin]] = {}
    for each in bins:
        members.setdefault(each.server.group_name, []).append(each)
    for version in versions:
        for each in members.get(version.group_name, ()):
            each.charge(facts.sizes.get((version.version_id, each.name), largest.get(version.version_id)))


def _placed_before(
    items: Iterable[_Item], bins: Mapping[str, _Bin], facts: PlacementFacts
) -> Mapping[int, Sequence[_Replica]]:
    """Return the replicas of each version that were placed before, and charge their servers with them."""
    wanted = {item.version_id: item for item in items}
    there = [
        (place, wanted[place[0]], bins[place[1]])
        for place in sorted(facts.placed)
        if place[0] in wanted and place[1] in bins
    ]
    for place, item, its in there:
        if place not in facts.refused:
            its.hold(item, facts.sizes.get(place, item.size))
    outgrown = _outgrown(bins.values())
    found: dict[int, list[_Replica]] = {}
    for place, item, its in there:
        is_gone = its.is_lost or its.server.group_name != item.group_name
        replica = _Replica(its, place in facts.available, place in facts.refused, is_gone, place in outgrown)
        found.setdefault(item.version_id, []).append(replica)
    return found


def _outgrown(bins: Iterable[_Bin]) -> frozenset[Place]:
    """Return what has to leave servers which have become too small for it: the least urgent, the smallest first.

    A server is filled to nine tenths, and is too small once the whole is exceeded: measuring is rough.
    """
    leaving = set()
    for each in bins:
        if each.server.room_bytes is None:
            continue
        excess = -each.free_bytes - each.guessed_bytes
        if excess <= each.server.room_bytes * (1 / FILLED_AT_MOST - 1):
            continue
        for _, size, version_id in sorted(each.known):
            if excess <= 0:
                break
            leaving.add((version_id, each.name))
            excess -= size
    return frozenset(leaving)


class _Packer:
    """Places one version after the other."""

    def __init__(self, bins: Iterable[_Bin], max_moves: int) -> None:
        self.placed: set[Place] = set()
        self.unplaced: dict[int, int] = {}
        self.moves = 0
        self._max_moves = max_moves
        self._moved_models: set[str] = set()
        self._open: dict[tuple[str, bool], list[tuple[int, str, _Bin]]] = {}
        """Servers that take further versions, the fullest first, with those that they are compared with."""
        for each in bins:
            if each.server.is_live and each.server.answers and not each.is_lost:
                insort(self._open.setdefault(each.peers, []), (*each.key, each))

    def add(self, item: _Item, before: Sequence[_Replica]) -> None:
        """Decide on one version, with the replicas that were placed ``before``."""
        staying = _without_surplus(item, [one for one in before if one.stays])
        lacking = item.replicas - len(staying)
        to_move = min(lacking, sum(one.may_move for one in before))
        taken = [one.bin for one in before]
        new = self._place_new(item, before, lacking - to_move)
        short = lacking - to_move - len(new)
        if to_move and not short:  # what has no place comes before what has one
            new += self._move(item, [*taken, *new])
        kept = [one.bin for one in [*staying, *_until_replaced(item, before, staying, short)]]
        self.placed.update((item.version_id, each.name) for each in [*kept, *new])
        if short:
            self.unplaced[item.version_id] = short

    def _place_new(self, item: _Item, before: Sequence[_Replica], count: int) -> list[_Bin]:
        """Return up to ``count`` servers for replicas that have none; those that refused it lately come last."""
        taken = [one.bin for one in before]
        new = self._place(item, taken, count)
        waiting = sum(one.was_refused and not one.leaves for one in before)
        return [*new, *self._place(item._replace(avoided=frozenset()), [*taken, *new], count - waiting - len(new))]

    def _move(self, item: _Item, taken: Sequence[_Bin]) -> list[_Bin]:
        """Return the server that one replica moves to, if it is its turn and one has room."""
        if self.moves >= self._max_moves or item.model_name in self._moved_models:
            return []
        found = self._place(item, taken, 1)
        if found:
            self.moves += 1
            self._moved_models.add(item.model_name)
        return found

    def _place(self, item: _Item, taken: Sequence[_Bin], count: int) -> list[_Bin]:
        """Return up to ``count`` servers beside those ``taken`` that take a further replica, and charge them."""
        found: list[_Bin] = []
        while len(found) < count:
            best = self._best_fit(item, [*taken, *found])
            if best is None:
                break
            peers = self._open[best.peers]
            del peers[bisect_left(peers, best.key)]
            best.charge(item.size)
            insort(peers, (*best.key, best))
            found.append(best)
        return found

    def _best_fit(self, item: _Item, taken: Sequence[_Bin]) -> _Bin | None:
        """Return the fullest server with room for it; of unknown size, and by count, the emptiest."""
        known, counted = (self._open.get((item.group_name, is_known), ()) for is_known in (True, False))
        fitting = known[::-1] if item.size is None else known[bisect_left(known, (item.size,)) :]
        for candidates in (fitting, counted[::-1]):
            for _, _, each in candidates:
                if each not in taken and each.name not in item.avoided:
                    return each
        return None


def _without_surplus(item: _Item, replicas: Sequence[_Replica]) -> Sequence[_Replica]:
    """Return those to keep: the available ones, on the fullest servers, so that others may become empty."""
    if len(replicas) <= item.replicas:
        return replicas
    return sorted(replicas, key=lambda one: (not one.is_available, one.bin.key))[: item.replicas]


def _until_replaced(
    item: _Item, before: Sequence[_Replica], staying: Sequence[_Replica], short: int
) -> Sequence[_Replica]:
    """Return those that leave later: where no other server has room, or until others are available."""
    waiting = [one for one in before if one.was_refused and not one.leaves]
    leaving = [one for one in before if one.leaves]
    leaving.sort(key=lambda one: (not one.is_available, one.bin.name))
    ready = sum(one.is_available for one in staying)
    return [*waiting[:short], *leaving[: max(0, item.replicas - ready)]]
