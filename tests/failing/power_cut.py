"""A volume that loses its power: what was written and not synced is kept, lost, torn or zeroed, in any mixture.

The model is that of crash-consistency checkers (Pillai and others, *All File Systems Are Not Created Equal*, OSDI
2014): only a sync orders anything. ``fdatasync`` makes the bytes of one file durable that were written before it began,
and ``fsync`` of a folder its names; a file's bytes and its name are two things.
"""

import os
import threading
from collections.abc import Hashable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from understudy.adapters.disk.files import DiskFiles

LOST, KEPT, TORN, ZEROED = "lost", "kept", "torn", "zeroed"
_FOLDER = -1
"""In place of a file's number."""


class Bytes(NamedTuple):
    """A change of a file's bytes: ``data`` at ``offset``, or with ``data`` ``None`` the file ends there."""

    file: int
    offset: int
    data: bytes | None


class Name(NamedTuple):
    """A name in a folder: of a file, of a folder, or ``None``: deleted."""

    path: str
    what: int | None


class Renamed(NamedTuple):
    """A file's name replaced another one in the same folder: both change, or neither."""

    path: str
    to: str
    what: int


class BytesSynced(NamedTuple):
    """All changes of a file's bytes before this event's number are durable."""

    file: int
    before: int


class NamesSynced(NamedTuple):
    """All changes of a folder's names before this event's number are durable."""

    folder: str
    before: int


class Said(NamedTuple):
    """What the world outside was told: it stays true whatever becomes of the volume."""

    what: Hashable


Event = Bytes | Name | Renamed | BytesSynced | NamesSynced | Said


class RecordedFiles(DiskFiles):
    """Changes a real folder, without real syncs, and remembers in which order.

    Args:
        volume: What is there at first is durable.
    """

    def __init__(self, volume: Path) -> None:
        self._volume = volume
        self._lock = threading.RLock()
        self.events: list[Event] = []
        self._base: dict[int, bytes] = {}
        self._base_names: dict[str, int] = {"": _FOLDER}
        self._numbers: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        for path in sorted(volume.rglob("*")):
            if path.is_dir():
                self._base_names[self._key(path)] = _FOLDER
            else:
                self._base_names[self._key(path)] = number = self._number_of_new(path.stat().st_ino)
                self._base[number] = path.read_bytes()
                self._sizes[number] = len(self._base[number])
        self._names = dict(self._base_names)

    def say(self, what: Hashable) -> None:
        """Remember what the world outside is told now."""
        with self._lock:
            self.events.append(Said(what))

    def said_before(self, moment: int) -> Iterator[Hashable]:
        """Return what the world outside was told before the power was cut."""
        return (event.what for event in self.events[:moment] if isinstance(event, Said))

    def write(self, file: int, block: bytes) -> int:  # type: ignore[override]
        with self._lock:
            landed = os.write(file, block)
            number = self._number(file)
            self.events.append(Bytes(number, self._sizes[number], block[:landed]))
            self._sizes[number] += landed
            return landed

    def create(self, path: Path) -> int:
        with self._lock:
            file = super().create(path)
            number = self._number_of_new(os.fstat(file).st_ino)
            self._sizes[number] = 0
            self._name(path, number)
            return file

    def cut(self, file: int, end: int) -> None:
        with self._lock:
            super().cut(file, end)
            self._sizes[self._number(file)] = end
            self.events.append(Bytes(self._number(file), end, None))

    def empty(self, path: Path) -> None:
        with self._lock:
            super().empty(path)
            number = self._names[self._key(path)]
            self._sizes[number] = 0
            self.events.append(Bytes(number, 0, None))

    def allocate(self, file: int, size: int) -> None:
        self.write(file, bytes(size))

    def delete(self, path: Path) -> None:
        with self._lock:
            super().delete(path)
            self._name(path, None)

    def replace(self, path: Path, to: Path) -> None:
        with self._lock:
            super().replace(path, to)
            event = Renamed(self._key(path), self._key(to), self._names[self._key(path)])
            _rename(self._names, event)
            self.events.append(event)

    def make_folder(self, path: Path) -> None:
        with self._lock:
            super().make_folder(path)
            self._name(path, _FOLDER)

    def delete_folder(self, path: Path) -> None:
        with self._lock:
            super().delete_folder(path)
            self._name(path, None)

    def sync(self, file: int) -> None:
        with self._lock:
            number = self._numbers.get(os.fstat(file).st_ino)
            if number is not None:
                self.events.append(BytesSynced(number, len(self.events)))

    def sync_folder(self, folder: Path) -> None:
        with self._lock:
            self.events.append(NamesSynced(self._key(folder), len(self.events)))

    def after_power_cut(self, moment: int, dice: Random, to: Path) -> None:
        """Write a folder as it may be found when the power was cut before the event of this number."""
        events = self.events[:moment]
        contents = {number: bytearray(data) for number, data in self._base.items()}
        names = dict(self._base_names)
        durable = {event[:1]: event.before for event in events if isinstance(event, (BytesSynced, NamesSynced))}
        mood = [dice.random() for _ in range(4)]
        fates = dice.choices((LOST, KEPT, TORN, ZEROED), mood, k=len(events) + 1)
        for place, event in enumerate(events):
            if isinstance(event, Bytes):
                is_durable = place < durable.get((event.file,), 0)
                _apply(contents.setdefault(event.file, bytearray()), event, KEPT if is_durable else fates[place], dice)
            elif isinstance(event, (Name, Renamed)):
                folder = event.path.rpartition("/")[0]
                if place < durable.get((folder,), 0) or fates[place] in (KEPT, ZEROED):
                    _rename(names, event)
        _write_out(names, contents, to)

    def _name(self, path: Path, what: int | None) -> None:
        event = Name(self._key(path), what)
        _rename(self._names, event)
        self.events.append(event)

    def _key(self, path: Path) -> str:
        return "" if path == self._volume else path.relative_to(self._volume).as_posix()

    def _number(self, file: int) -> int:
        return self._numbers[os.fstat(file).st_ino]

    def _number_of_new(self, inode: int) -> int:
        """Return a number for a file whose inode may have been another file's before."""
        self._numbers[inode] = number = len(self._sizes)
        self._sizes[number] = 0
        return number


def _rename(names: dict[str, int], event: Name | Renamed) -> None:
    if isinstance(event, Renamed):
        names.pop(event.path, None)
        names[event.to] = event.what
    elif event.what is None:
        names.pop(event.path, None)
    else:
        names[event.path] = event.what


def _apply(content: bytearray, event: Bytes, fate: str, dice: Random) -> None:
    """Apply a change of a file's bytes; a hole before them reads as zeros."""
    if fate == LOST:
        return
    if event.data is None:
        if fate == KEPT:
            del content[event.offset :]
        return
    data = bytes(len(event.data)) if fate == ZEROED else event.data
    if fate == TORN:
        data = data[: dice.randrange(len(data) + 1)]
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(data)] = data


def _write_out(names: dict[str, int], contents: dict[int, bytearray], to: Path) -> None:
    to.mkdir()
    for path, what in sorted(names.items()):
        target = to / path
        if not target.parent.is_dir() or path == "":
            continue  # a name in a folder whose own name was lost
        if what == _FOLDER:
            target.mkdir()
        else:
            target.write_bytes(contents.get(what, b""))
