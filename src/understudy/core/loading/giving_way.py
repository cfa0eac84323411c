"""Which wanted version leaves a server that has no room for another wanted one of its model.

Idle versions leave first (``next_action``). Of wanted ones a champion before leaves once its time is over. What else
may leave is the server's ``Transition``, as TensorFlow Serving has it (``AspiredVersionPolicy``).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from understudy.core.loading.next_action import VersionSeen
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import RANK, Why

KEPT_SECONDS: Final = 1_800.0
"""How long a champion before keeps its place at least, as a rollout keeps it warm: a rollback brings it back."""
_GOING: Final = (LoadingState.QUIESCING, LoadingState.UNLOADING, LoadingState.END, LoadingState.ERROR, None)


class Transition(StrEnum):
    """How a server goes from one version of a model to the next where it has no room for both."""

    AVAILABILITY = "availability"
    """What is wanted stays; the next version waits until there is room."""
    RESOURCE = "resource"
    """The version leaves first, while another server of its group has it."""


def with_those_that_leave(
    seen: Sequence[VersionSeen], missing: Mapping[int, int], transition: Transition, tried: Collection[int]
) -> Sequence[VersionSeen]:
    """Return ``seen`` with each version as unwanted that leaves, or stays away, for another one.

    Args:
        seen: As one round finds them.
        missing: How many bytes more each version needs that was not loaded for want of room.
        transition: Of the server.
        tried: Those of ``missing`` that found no room since a version came or left last: for them one may begin to
            leave. Whether there is room now for the others is known once they are tried, and what is on its way for
            them stays away until then.
    """
    needy = [one for one in seen if one.version_id in missing and one.rank not in (None, RANK[Why.PREVIOUS_CHAMPION])]
    beginning = _first_to_leave(seen, [new for new in needy if new.version_id in tried], missing, transition)
    going = [one for one in seen if one.state in _GOING]
    untried = [new for new in needy if new.version_id not in tried]
    leaving = beginning | {one.version_id for one in going for new in untried if _may_leave(one, new, transition)}
    return [replace(one, rank=None) if one.version_id in leaving else one for one in seen]


def _first_to_leave(
    seen: Sequence[VersionSeen], needy: Sequence[VersionSeen], missing: Mapping[int, int], transition: Transition
) -> set[int]:
    """Return the one that begins to leave: the least important one whose memory is enough, while none is idle."""
    if any(one.idle_seconds is not None and one.is_available for one in seen):
        return set()
    found = [
        one
        for one in seen
        for new in needy
        if one.is_available and one.memory_bytes >= missing[new.version_id] and _may_leave(one, new, transition)
    ]
    return {max(found, key=lambda one: (one.rank or 0, one.version_id)).version_id} if found else set()


def _may_leave(one: VersionSeen, new: VersionSeen, transition: Transition) -> bool:
    """Whether a wanted version may leave for another one of its model.

    With ``RESOURCE`` the next version gets its first server so, and the others once it is the more important one: a
    version that has a server is not taken from it again by the one that has left for it. A more important one that no
    server has, since the one that had it died, takes the place of the next.
    """
    if one.rank is None or one.version_id == new.version_id or one.model_name != new.model_name:
        return False
    if one.has_had_its_time:
        return True
    if transition is not Transition.RESOURCE:
        return False
    is_nowhere, is_more_important = not new.is_elsewhere, (new.rank or 0) < one.rank
    return (one.is_elsewhere and (is_nowhere or is_more_important)) or (is_nowhere and is_more_important)
