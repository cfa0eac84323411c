"""The memory of one agent's model server: what its versions take, and whether a further one is loaded."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from math import inf

from understudy.core.loading.memory import Room, estimated_bytes, no_room, taken_bytes
from understudy.core.loading.state import LoadingState
from understudy.errors import NothingFits
from understudy.ports.loading.agent_store import VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.telemetry.telemetry import Telemetry

Measure = Callable[[], Awaitable[int | None]]
"""Returns how many bytes the server's process takes now; ``None``: that cannot be measured."""
_LEAVING = (LoadingState.QUIESCING, LoadingState.UNLOADING)
_AT_SERVER = (LoadingState.LOADING, LoadingState.AVAILABLE, *_LEAVING)


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
    """

    def __init__(
        self,
        stage: ArtifactStage,
        telemetry: Telemetry,
        *,
        capacity_bytes: int | None = None,
        measure: Measure = not_measured,
    ) -> None:
        self._stage = stage
        self._telemetry = telemetry
        self._capacity_bytes = capacity_bytes
        self._measure = measure
        self._own_bytes: float = inf
        """The least that the server was seen to take beside its versions: what it keeps of unloaded ones is reused."""
        self._loaded: Sequence[VersionAtServer] = ()
        self._missing: dict[int, int] = {}
        self._has_changed = False
        """Whether a version was loaded, or asked to leave, since a load found no room last."""

    async def look(self, versions: Sequence[VersionAtServer], served: Collection[int], *, is_idle: bool) -> None:
        """Take notice of a round: of the versions that the server has, and, while nothing is under way, of its process.

        ``served`` has the ids of those that the server says it has.
        """
        wanted = {version.version_id for version in versions if version.is_wanted}
        self._missing = {version_id: size for version_id, size in self._missing.items() if version_id in wanted}
        self._loaded = [one for one in versions if one.version_id in served and _is_charged(one)]
        if self._capacity_bytes is None or not is_idle:
            return
        versions_bytes = sum(_bytes_of(one) or 0 for one in self._loaded)
        used = await self._measure()
        if used is not None:
            self._own_bytes = min(self._own_bytes, max(used - versions_bytes, 0))
        for what, size in (("capacity", self._capacity_bytes), ("versions", versions_bytes), ("process", used)):
            if size is not None:
                self._telemetry.set("model_server_memory_bytes", size, what)

    @property
    def needs_room(self) -> bool:
        """Whether a load found no room since a version came or left last: another one is to make some."""
        return bool(self._missing) and not self._has_changed

    @property
    def missing(self) -> Mapping[int, int]:
        """How many bytes more each version needed that was not loaded at its last try for want of room."""
        return self._missing

    def expect_room(self) -> None:
        """Take notice that a version leaves: whether a further one has to is known at the next load."""
        self._has_changed = True

    async def load(self, version: VersionAtServer, load: Callable[[], Awaitable[None]]) -> int | None:
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
        needed = estimated_bytes(files, measured)
        problem = no_room(needed, room, was_measured=measured is not None)
        if problem is not None:
            if not any(one.record is not None and one.record.state in _LEAVING for one in self._loaded):
                self._missing[version.version_id] = needed - room.free_bytes  # else one is about to make room
                self._has_changed = False
            raise NothingFits(problem)
        self._missing.pop(version.version_id, None)
        before = await self._measure()
        await load()
        self._has_changed = True
        return taken_bytes(files, before, await self._measure())

    async def _room_beside(self, version: VersionAtServer, capacity_bytes: int) -> Room:
        """Return the room beside the other versions; one that was loaded before its memory was noted is estimated."""
        others = [one for one in self._loaded if one.version_id != version.version_id]
        sizes = [await self._size_of(one) for one in others]
        own = 0 if self._own_bytes == inf else int(self._own_bytes)
        return Room(capacity_bytes, own, sum(sizes), len(sizes))

    async def _size_of(self, version: VersionAtServer) -> int:
        known = _bytes_of(version)
        if known is not None or version.record is None or version.record.digest is None:
            return known or 0
        return estimated_bytes(await self._stage.files_of(version.record.digest))


def _bytes_of(version: VersionAtServer) -> int | None:
    return None if version.record is None else version.record.memory_bytes


def _is_charged(version: VersionAtServer) -> bool:
    return version.record is not None and version.record.state in _AT_SERVER
