"""What an agent does next about each version: from what is wanted, what it wrote, and what its server says.

Level-triggered: nothing here remembers an event. After a crash at any moment, a server that was restarted or a lost
notification the next round compares the same three things, and goes on from what is true.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from understudy.core.loading.state import LoadingState


class Action(StrEnum):
    """One step towards what is wanted."""

    FETCH = "fetch"
    """Copy the artifact to the stage and verify it; then the version is to be loaded."""
    LOAD = "load"
    """Have the server load it from the stage."""
    VALIDATE = "validate"
    """Ask the version that the server has loaded its cases, and then add the endpoint."""
    ANNOUNCE = "announce"
    """Add the endpoint again: the server has the version, and it was available before."""
    RELOAD = "reload"
    """The server has lost the version: take the endpoint back, and begin again."""
    WITHDRAW = "withdraw"
    """Take the endpoint back."""
    UNLOAD = "unload"
    """Have the server drop it."""
    END = "end"
    """Write down that the server does not have it."""
    FORGET = "forget"
    """Delete the record."""


MAX_TASKS: Final[Mapping[Action, int]] = {Action.FETCH: 2, Action.LOAD: 1, Action.VALIDATE: 1, Action.UNLOAD: 1}
"""Actions that take time run beside the rounds, so many of each kind at once."""


_MAY_SERVE: Final = (LoadingState.LOADING, LoadingState.AVAILABLE, LoadingState.QUIESCING)
"""States of a verified artifact that was given to the server."""
_NOT_KNOWN: Final = (None, LoadingState.END, LoadingState.UNLOADING)
"""States that say nothing of what a served copy was loaded from."""
_LEAVING: Final = (LoadingState.QUIESCING, LoadingState.UNLOADING)
_IF_NOT_SERVED: Final[Mapping[LoadingState | None, Action]] = {
    LoadingState.LOADING: Action.LOAD,
    LoadingState.AVAILABLE: Action.RELOAD,
}


@dataclass(frozen=True, slots=True)
class VersionSeen:
    """A version as one round finds it."""

    version_id: int
    model_name: str
    rank: int | None
    """The lower, the sooner it is loaded; ``None``: it is not wanted."""
    state: LoadingState | None
    """What was written of it; ``None``: nothing."""
    is_served: bool
    """Whether the server itself says that it is loaded and ready."""
    has_endpoint: bool
    may_withdraw: bool = True
    """Whether the endpoint is the agent's own: others' are not its to take back."""
    may_retry: bool = False
    """After an error: whether it is time for the next attempt."""
    is_quiet: bool = False
    """After the endpoint was taken back: whether no proxy may call any more."""
    is_over: bool = False
    """After the end: whether its record has been kept for long enough."""
    idle_seconds: float | None = None
    """Not wanted, and to stay while it is available: for how long it has not been called."""
    memory_bytes: int = 0
    """What it takes of the server's memory; 0 where no account is kept."""
    is_elsewhere: bool = False
    """Whether another server, whose agent reports that it answers, has an endpoint of it."""
    has_had_its_time: bool = False
    """Whether it is wanted only since it was champion before, and has been that for longer than it is kept warm."""

    @property
    def is_available(self) -> bool:
        """Whether calls can be answered: by the record, the server and the endpoint."""
        return self.state is LoadingState.AVAILABLE and self.is_served and self.has_endpoint


def next_actions(
    seen: Sequence[VersionSeen], busy: Mapping[int, Action], *, needs_room: bool = False
) -> Mapping[int, Action]:
    """Return the action to begin for each version that needs one now.

    Args:
        seen: Every version that the server is to have, has, or of which something is written.
        busy: The action that is under way, by version; such a version gets no other.
        needs_room: Whether a wanted version does not fit into the server's memory: of those that stay without being
            wanted one goes after the other.
    """
    kept = _kept(seen, needs_room=needs_room)
    due = {}
    for version in sorted(seen, key=_urgency):
        if version.version_id in busy:
            continue
        action = _if_unwanted(version, kept) if version.rank is None else _if_wanted(version)
        if action is not None:
            due[version.version_id] = action
    return _admitted(due, busy.values())


def _if_wanted(version: VersionSeen) -> Action | None:
    if version.state is LoadingState.ERROR:
        return Action.FETCH if version.may_retry else None
    if version.is_served and version.has_endpoint and version.state in _NOT_KNOWN:
        # Proxies call it, by an endpoint that people or an agent of before left: that goes on while it is verified.
        return Action.FETCH
    if version.state is LoadingState.UNLOADING:
        # The server may be dropping it: it is wanted again once that is over.
        return Action.UNLOAD if version.is_served else Action.END
    if version.is_served and version.state in _MAY_SERVE:
        begun = Action.VALIDATE if version.state is LoadingState.LOADING else Action.ANNOUNCE
        return None if version.is_available else begun
    if version.is_served and version.state in (None, LoadingState.END):
        return Action.UNLOAD  # what it was loaded from is not known
    return _IF_NOT_SERVED.get(version.state, Action.FETCH)


def _if_unwanted(version: VersionSeen, kept: Collection[int]) -> Action | None:
    state = version.state
    if state is LoadingState.AVAILABLE:
        return None if version.version_id in kept else _withdraw(version)
    if state is LoadingState.QUIESCING:
        return _unload(version) if version.is_quiet else None
    if version.is_served or version.has_endpoint or state is LoadingState.LOADING:  # which may be about to finish
        has_to_wait = state is LoadingState.ERROR and not version.may_retry
        return None if has_to_wait else _unload(version)
    if state is LoadingState.END:
        return Action.FORGET if version.is_over else None
    return None if state is None else Action.END


def _unload(version: VersionSeen) -> Action | None:
    """Nothing is unloaded that has an endpoint."""
    return _withdraw(version) if version.has_endpoint else Action.UNLOAD


def _withdraw(version: VersionSeen) -> Action | None:
    return None if version.has_endpoint and not version.may_withdraw else Action.WITHDRAW


def _kept_for_their_model(seen: Sequence[VersionSeen]) -> frozenset[int]:
    """Return unwanted versions that stay until a wanted one of their model is available (availability-preserving)."""
    wanted = [version for version in seen if version.rank is not None]
    waiting = {version.model_name for version in wanted if not version.is_available}
    available = {version.model_name for version in wanted if version.is_available}
    unwanted = [version for version in seen if version.rank is None and version.is_available]
    # The newest of a model stays: of several unwanted ones one is enough.
    newest = {version.model_name: version.version_id for version in sorted(unwanted, key=lambda one: one.version_id)}
    return frozenset(version_id for model, version_id in newest.items() if model in waiting - available)


def _kept(seen: Sequence[VersionSeen], *, needs_room: bool) -> frozenset[int]:
    """Return unwanted versions that stay all the same.

    Where room is needed one of them gives way, and none while another still does: the idle one that was not called for
    longest, and without one any that stays for its model, since no policy sends it calls.
    """
    idle = [version for version in seen if version.idle_seconds is not None and version.is_available]
    by_use = [version.version_id for version in sorted(idle, key=lambda one: (one.idle_seconds or 0.0, one.version_id))]
    for_model = _kept_for_their_model(seen)
    if needs_room and not any(version.state in _LEAVING and version.rank is None for version in seen):
        gives_way = by_use[-1] if by_use else min(for_model, default=0)
        return (for_model | frozenset(by_use)) - {gives_way}
    return for_model | frozenset(by_use)


def _urgency(version: VersionSeen) -> tuple[bool, int, int]:
    return version.rank is None, version.rank or 0, version.version_id


def _admitted(due: Mapping[int, Action], under_way: Collection[Action]) -> Mapping[int, Action]:
    """Leave out what is more than may be under way at once; the more urgent ones come first."""
    running = Counter(under_way)
    admitted = {}
    for version_id, action in due.items():
        if action not in MAX_TASKS or running[action] < MAX_TASKS[action]:
            running[action] += 1
            admitted[version_id] = action
    return admitted
