"""The memory of one agent's model server: what its versions take, and whether a further one is loaded."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from understudy.core.loading.held_room import HeldRoom, held_room, still_held
from understudy.core.loading.memory import (
    PAD_BYTES,
    ProcessSeen,
    ProcessUse,
    Room,
    estimated_bytes,
    no_room,
    no_room_after_all,
    residue_bytes,
    seen_since_start,
    taken_bytes,
)
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import Why
from understudy.errors import NothingFits
from understudy.ports.loading.agent_store import VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.telemetry.telemetry import Telemetry

Measure = Callable[[], Awaitable[ProcessUse | None]]
"""Returns what the server's process takes now; ``None``: that cannot be measured."""
_LEAVING = (LoadingState.QUIESCING, LoadingState.UNLOADING)
_AT_SERVER = (LoadingState.LOADING, LoadingState.AVAILABLE, *_LEAVING)


class Loaded(NamedTuple):
    """A version that was loaded."""

    expected_bytes: int
    """What it was expected to take."""
    memory_bytes: int
    """What it is taken to take."""


class _Short(NamedTuple):
    """What a version needed that was not loaded at its last try for want of room."""

    version: VersionAtServer
    needed_bytes: int
    missing_bytes: int


async def not_measured() -> None:
    """Measure nothing."""
    return


class MemoryBudget:
    """Keeps account of what versions take.

    Args:
        stage: Knows how large a version's files are.
        telemetry: Gets what is taken.
        capacity_bytes: Of the server; ``None``: every version is loaded.
        measure: Measures the server's process.
        pad_bytes: What the server takes for a version beside its files.
    """

    def __init__(
        self,
        stage: ArtifactStage,
        telemetry: Telemetry,
        *,
        capacity_bytes: int | None = None,
        measure: Measure = not_measured,
        pad_bytes: int = PAD_BYTES,
    ) -> None:
        self._stage = stage
        self._telemetry = telemetry
        self._capacity_bytes = capacity_bytes
        self._measure = measure
        self._pad_bytes = pad_bytes
        self._seen: ProcessSeen | None = None
        self._loaded: Sequence[VersionAtServer] = ()
        self._short: dict[int, _Short] = {}
        self._tried: set[int] = set()
        """Those of ``_short`` that were tried since any version was loaded, or asked to leave."""
        self._held: Sequence[HeldRoom] = ()

    async def look(self, versions: Sequence[VersionAtServer], served: Collection[int], *, is_idle: bool) -> None:
        """Take notice of a round: of the versions that the server has, and, while nothing is under way, of its process.

        ``served`` has the ids of those that the server says it has.
        """
        wanted = {version.version_id for version in versions if version.is_wanted}
        self._short = {version_id: short for version_id, short in self._short.items() if version_id in wanted}
        self._loaded = [one for one in versions if one.version_id in served and _is_charged(one)]
        available = {one.version_id for one in self._loaded if _state_of(one) is LoadingState.AVAILABLE}
        self._held = still_held(self._held, wanted, available)
        if self._capacity_bytes is None or not is_idle:
            return
        versions_bytes = sum(_bytes_of(one) or 0 for one in self._loaded)
        sizes = {"capacity": self._capacity_bytes, "versions": versions_bytes}
        use = await self._measure()
        if use is not None:
            self._seen = seen_since_start(self._seen, use, versions_bytes)
            sizes |= {"process": use.resident_bytes, "residue": residue_bytes(self._seen, use)}
        for what, size in sizes.items():
            self._telemetry.set("model_server_memory_bytes", size, what)

    @property
    def room_bytes(self) -> int | None:
        """What the server's versions may take together, as far as its process was measured; ``None``: not known."""
        if self._capacity_bytes is None:
            return None
        return Room(self._capacity_bytes, 0 if self._seen is None else self._seen.own_bytes).free_bytes

    @property
    def missing(self) -> Mapping[int, int]:
        """How many bytes more each version needed that was not loaded at its last try for want of room."""
        return {version_id: short.missing_bytes for version_id, short in self._short.items()}

    @property
    def tried(self) -> Collection[int]:
        """Those of ``missing`` that found no room since a version came or left last: others are to make some."""
        return self._tried.intersection(self._short)

    def expect_room(self, leaving: Iterable[VersionAtServer]) -> None:
        """Take notice that versions begin to leave: whether further ones have to is known at each next load.

        The room of a wanted one is kept for its model until one of that is available.
        """
        for one in leaving:
            self._tried.clear()
            size = _bytes_of(one) or 0
            needed = {
                version_id: short.needed_bytes
                for version_id, short in self._short.items()
                if short.version.model_name == one.model_name
                and short.version.why is not Why.PREVIOUS_CHAMPION
                and short.missing_bytes <= size
            }
            if one.is_wanted and needed:
                self._held = [*self._held, held_room(one.version_id, size, needed)]

    def note_failure(self, version_id: int, *, is_final: bool) -> None:
        """Take notice that a version failed, and not for want of room.

        The one that has left for it may come back. After its last attempt no room is kept for it.
        """
        self._short.pop(version_id, None)
        if is_final:
            self._held = [one.without(version_id) for one in self._held]

    def clear(self) -> None:
        """Forget which versions wait for room: another process may go on with them."""
        self._short.clear()
        self._tried.clear()
        self._held = ()

    async def load(self, version: VersionAtServer, load: Callable[[], Awaitable[None]]) -> Loaded | None:
        """Load a version if there is room for it, and return what it takes; ``None``: no account is kept.

        Raises:
            NothingFits: There is no room; the message has the figures.
        """
        if self._capacity_bytes is None:
            await load()
            return None
        record = version.record
        digest = None if record is None else record.digest
        files = () if digest is None else await self._stage.files_of(digest)
        measured = _bytes_of(version)
        room = await self._room_beside(version, self._capacity_bytes)
        needed = estimated_bytes(files, measured, pad_bytes=self._pad_bytes)
        problem = no_room(needed, room, was_measured=measured is not None)
        if problem is not None:
            await self._note_want(version, needed, room)
            raise NothingFits(problem, expected_bytes=needed)
        self._short.pop(version.version_id, None)
        before = await self._resident_bytes()
        await load()
        self._tried.clear()
        after = await self._resident_bytes()
        return Loaded(needed, taken_bytes(files, before, after, measured, pad_bytes=self._pad_bytes))

    async def _resident_bytes(self) -> int | None:
        use = await self._measure()
        return None if use is None else use.resident_bytes

    async def why_too_large(self, version: VersionAtServer, taken: int) -> str | None:
        """Return in words why a version that is loaded has no room after all, by what it takes; ``None``: it has.

        Where it was loaded before, it was let in by what it took then.
        """
        record, measured = version.record, _bytes_of(version)
        if self._capacity_bytes is None or record is None or record.digest is None:
            return None
        files = await self._stage.files_of(record.digest)
        expected = estimated_bytes(files, measured, pad_bytes=self._pad_bytes)
        return no_room_after_all(taken, expected, await self._room_beside(version, self._capacity_bytes))

    async def _note_want(self, version: VersionAtServer, needed_bytes: int, room: Room) -> None:
        """Keep what a version needs that does not fit, unless another one is about to make room, or to take its own."""
        if room.held_bytes == 0 and not any(_state_of(one) in _LEAVING for one in self._loaded):
            self._short[version.version_id] = _Short(version, needed_bytes, needed_bytes - room.free_bytes)
            self._tried.add(version.version_id)
        taken = await self._sizes_beside(version)
        self._held = [one if one.claimed_bytes(taken) else one.without(version.version_id) for one in self._held]

    async def _room_beside(self, version: VersionAtServer, capacity_bytes: int) -> Room:
        """Return the room beside the other versions, and beside what is kept for those of other models."""
        taken = await self._sizes_beside(version)
        own = 0 if self._seen is None else self._seen.own_bytes
        held = sum(
            one.left_bytes(taken) for one in self._held if one.waiting and version.version_id not in one.claimants
        )
        return Room(capacity_bytes, own, sum(taken.values()), len(taken), held)

    async def _sizes_beside(self, version: VersionAtServer) -> Mapping[int, int]:
        """Return what the other versions take; one that was loaded before its memory was noted is estimated."""
        return {
            one.version_id: await self._size_of(one) for one in self._loaded if one.version_id != version.version_id
        }

    async def _size_of(self, version: VersionAtServer) -> int:
        known = _bytes_of(version)
        if known is not None or version.record is None or version.record.digest is None:
            return known or 0
        return estimated_bytes(await self._stage.files_of(version.record.digest), pad_bytes=self._pad_bytes)


def _state_of(version: VersionAtServer) -> LoadingState | None:
    return None if version.record is None else version.record.state


def _bytes_of(version: VersionAtServer) -> int | None:
    return None if version.record is None else version.record.memory_bytes


def _is_charged(version: VersionAtServer) -> bool:
    return _state_of(version) in _AT_SERVER
