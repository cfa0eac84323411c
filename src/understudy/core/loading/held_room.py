"""Room that a wanted version gave up: it is kept for its model until one of that is available again.

Without that whichever version is tried next would take it, and the model for which room was made would have none.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from understudy.core.loading.memory import estimated_bytes


@dataclass(frozen=True, slots=True)
class HeldRoom:
    """Room on one server that is free for ``claimants`` only."""

    size_bytes: int
    claimants: frozenset[int]
    """The version that gave it up, and those that it was given up for."""
    waiting: frozenset[int]
    """Those of them that may still come; without any the room is free for every version."""

    def left_bytes(self, taken: Mapping[int, int]) -> int:
        """Return how much of it is kept beside the versions that the server has, of ``taken`` bytes each."""
        return max(self.size_bytes - self.claimed_bytes(taken), 0)

    def claimed_bytes(self, taken: Mapping[int, int]) -> int:
        """Return what claimants take of the server's memory."""
        return sum(size for version_id, size in taken.items() if version_id in self.claimants)

    def without(self, version_id: int) -> "HeldRoom":
        """Return it for the case that a version does not come any more."""
        return replace(self, waiting=self.waiting - {version_id})


def held_room(version_id: int, memory_bytes: int, needed: Mapping[int, int]) -> HeldRoom:
    """Return what is kept when a version of ``memory_bytes`` begins to leave.

    It is enough for each of the versions that it leaves for, which are expected to take ``needed`` bytes, and for the
    version itself, which comes back if none of them can be loaded.
    """
    claimants = frozenset({version_id, *needed})
    return HeldRoom(max(estimated_bytes((), memory_bytes), *needed.values()), claimants, claimants)


def still_held(held: Iterable[HeldRoom], wanted: Collection[int], available: Collection[int]) -> list[HeldRoom]:
    """Return what is kept still: what a wanted version may come for, and where no claimant is available."""
    left = [replace(one, waiting=one.waiting.intersection(wanted)) for one in held]
    return [one for one in left if one.waiting and one.claimants.isdisjoint(available)]
