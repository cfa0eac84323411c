"""Memory of a model server: what a version is expected to take, and whether there is room for it.

Source:
    TensorFlow Serving's own estimate, the size of the files times 1.2 and something on top. Where a factor and what is
    on top are others, they are what ``make server-memory`` has measured.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MEBIBYTE: Final = 1_048_576
PAD_BYTES: Final = 32 * MEBIBYTE
"""Beside its files, of a version on a server of an unknown kind."""
PADS: Final[Mapping[str, int]] = {
    "understudy": 12 * MEBIBYTE,
    "mlserver": 80 * MEBIBYTE,
    "triton": 36 * MEBIBYTE,
    "torchserve": 250 * MEBIBYTE,
    "tfserving": PAD_BYTES,  # not measured: its program is in no package index
}
"""By the kind of the server: libraries that the first version of their kind imports, or a process of its own."""
FILLED_AT_MOST: Final = 0.9
"""Of a server's memory: loads have peaks, and calls need some."""
MEASURED_FACTOR: Final = 1.1
"""Of what a version was measured to take, at its next load."""
FACTORS: Final = {
    ".onnx": 2.0,
    ".pb": 1.2,
    ".pt": 1.5,
    ".pth": 1.5,
    ".mar": 1.5,
    ".safetensors": 1.1,
    ".npy": 1.1,
    ".npz": 1.1,
}
"""Memory for each byte of a file, by its suffix."""
VARIABLES: Final = "variables"
"""The folder of a SavedModel that has its weights, in files of other suffixes."""
VARIABLES_FACTOR: Final = 1.2
"""Source: ``resource_estimator`` of TensorFlow Serving, which takes it of the whole SavedModel."""
OTHER_FACTOR: Final = 2.0
"""Of other files, such as pickles."""
TREE_FACTOR: Final = 13.0
"""Of what an ONNX file has of trees: each node is a dozen small numbers there, and as many words in memory."""


class StagedFile(NamedTuple):
    """A file of an artifact."""

    name: str
    size: int
    tree_bytes: int = 0
    """How much of an ONNX file is trees."""


class ProcessUse(NamedTuple):
    """What a server's process takes at one moment, with those that it has started."""

    resident_bytes: int
    started: str
    """Differs for each start of the server."""


class ProcessSeen(NamedTuple):
    """What was seen of a server's process since it was started."""

    started: str
    own_bytes: int
    """The least that it took beside its versions: what it keeps of unloaded ones is reused."""
    most_bytes: int
    """The most that its versions took together."""


class Room(NamedTuple):
    """How a server's memory is taken."""

    capacity_bytes: int
    """As its operator has said."""
    own_bytes: int = 0
    """What the server takes without any version; 0 where that was not measured."""
    versions_bytes: int = 0
    """What its versions take together."""
    versions: int = 0
    held_bytes: int = 0
    """What is kept for versions of another model, one of which has left for the next."""

    @property
    def free_bytes(self) -> int:
        """What versions may still take."""
        return max(
            int(self.capacity_bytes * FILLED_AT_MOST) - self.own_bytes - self.versions_bytes - self.held_bytes, 0
        )


def estimated_bytes(
    files: Iterable[StagedFile], measured_bytes: int | None = None, *, pad_bytes: int = PAD_BYTES
) -> int:
    """Return what a version is expected to take.

    Args:
        files: Those of its artifact.
        measured_bytes: What it took when it was loaded before; ``None``: it was not.
        pad_bytes: What the server takes for a version beside its files.
    """
    if measured_bytes is not None:
        return int(measured_bytes * MEASURED_FACTOR)
    return int(sum(_in_memory(file) for file in files)) + pad_bytes


def _in_memory(file: StagedFile) -> float:
    *folders, name = file.name.split("/")
    factor = VARIABLES_FACTOR if VARIABLES in folders else FACTORS.get(_suffix_of(name), OTHER_FACTOR)
    return (file.size - file.tree_bytes) * factor + file.tree_bytes * TREE_FACTOR


def _suffix_of(name: str) -> str:
    _, dot, suffix = name.rpartition(".")
    return (dot + suffix).lower()


def taken_bytes(
    files: Iterable[StagedFile],
    before: int | None,
    after: int | None,
    measured_bytes: int | None = None,
    *,
    pad_bytes: int = PAD_BYTES,
) -> int:
    """Return what a loaded version is taken to take: by the growth of the server's process, if that was measured.

    A process that reuses what another version left does not grow; then what the version took at its last load
    (``measured_bytes``) stands for it, or its files' size.
    """
    listed = list(files)
    if before is None or after is None:
        return estimated_bytes(listed, pad_bytes=pad_bytes)
    return max(after - before, measured_bytes or 0, sum(file.size for file in listed))


def seen_since_start(before: ProcessSeen | None, use: ProcessUse, versions_bytes: int) -> ProcessSeen:
    """Return what has been seen of a process by now; one that was started anew has left nothing.

    Args:
        before: What had been seen until now; ``None``: nothing.
        use: What the process takes.
        versions_bytes: What the versions that it has take together.
    """
    own = max(use.resident_bytes - versions_bytes, 0)
    if before is None or before.started != use.started:
        return ProcessSeen(use.started, own, versions_bytes)
    return ProcessSeen(use.started, min(before.own_bytes, own), max(before.most_bytes, versions_bytes))


def residue_bytes(seen: ProcessSeen, use: ProcessUse) -> int:
    """Return what a process keeps beyond all that its versions ever took together: no further version reuses that.

    What it keeps of versions that it has no more is no residue, as long as the next ones find their room there.
    """
    return max(use.resident_bytes - seen.own_bytes - seen.most_bytes, 0)


def no_room(needed_bytes: int, room: Room, *, was_measured: bool) -> str | None:
    """Return in words why a version does not fit; ``None``: it does."""
    if needed_bytes <= room.free_bytes:
        return None
    known = "measured at its last load" if was_measured else "by the size of its files"
    return f"it needs some {_whole(needed_bytes)} of memory ({known}), and {_left(room)}"


def no_room_after_all(taken_bytes: int, expected_bytes: int, room: Room) -> str | None:
    """Return in words why a version that was loaded does not fit, by what it really takes; ``None``: it does.

    Args:
        taken_bytes: By the growth of the server's process.
        expected_bytes: What it was let in by.
        room: Without the version itself.
    """
    if taken_bytes <= room.free_bytes:
        return None
    times = f"{taken_bytes / max(expected_bytes, 1):.2g} times the {mebibytes(expected_bytes)} that were expected"
    return f"loaded it takes {_whole(taken_bytes)} of memory, {times}, and {_left(room)}"


def _left(room: Room) -> str:
    own = f", {mebibytes(room.own_bytes)} by the server itself" if room.own_bytes else ""
    held = f", {mebibytes(room.held_bytes)} are kept for another model's next version" if room.held_bytes else ""
    return (
        f"{room.free_bytes // MEBIBYTE:,} MiB are left:"
        f" of {mebibytes(room.capacity_bytes)} {FILLED_AT_MOST:.0%} may be taken, and {mebibytes(room.versions_bytes)}"
        f" are by {room.versions} {'version' if room.versions == 1 else 'versions'}{own}{held}"
    )


def _whole(size: int) -> str:
    """Return what is needed, rounded up: what is left is rounded down, so that no message has the same of both."""
    return f"{-(-size // MEBIBYTE):,} MiB"


def mebibytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / MEBIBYTE:,.0f} MiB"
