"""Segment descriptors: the segments of one spool, each held open, so that it can be read although its name is gone."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_HELD = 40
"""Segments of a worker's own spool that stay open, so that their rows are shipped although the folder was deleted. The
default limit of a spool is 32 segments."""
_NUMBER = re.compile(r"[0-9]{12}|[1-9][0-9]{12,14}")


class SegmentDescriptors:
    """By number, the segments of a spool and the descriptors by which they are read.

    Which segments there are is known without listing the folder: while its lock is held, only the holder adds any. One
    thread appends and discards; another one, which has the turn of shipping, reads and closes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[int, int | None] = dict.fromkeys(_numbers_in(folder))
        """``None``: the segment is read by its name."""
        self._discarded: list[int] = []
        """Descriptors of discarded segments, which may still be read: the thread that has the turn closes them."""

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self._folder / f"{number:012d}.log"

    def numbers(self) -> list[int]:
        """Return the numbers of the segments, in order."""
        return sorted(self._held)

    def hold(self) -> None:
        """Open the segments that are there."""
        for number in self.numbers()[:MAX_HELD]:
            with suppress(OSError):
                self._held[number] = os.open(self.path(number), os.O_RDONLY)

    def add(self, number: int, segment: int) -> None:
        """Know of a segment that this process has created and has open."""
        held: int | None = None
        if len(self._held) < MAX_HELD:
            with suppress(OSError):  # no descriptor is left: it is read by its name
                held = os.dup(segment)
        self._held[number] = held

    def size(self, number: int) -> int:
        """Return the bytes of a segment, 0 once neither its name nor a descriptor is left."""
        held = self._held.get(number)
        with suppress(FileNotFoundError):
            return (self.path(number).stat() if held is None else os.fstat(held)).st_size
        return 0

    @contextmanager
    def opened(self, number: int) -> Iterator[int | None]:
        """Yield a descriptor of a segment for a read, or ``None`` if it is gone."""
        held = self._held.get(number)
        if held is not None:
            yield held
            return
        try:
            segment = os.open(self.path(number), os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            yield segment
        finally:
            os.close(segment)

    def close(self, number: int) -> None:
        """Close a segment that is read no more; it keeps its number."""
        held = self._held[number]
        if held is not None:
            self._held[number] = None
            os.close(held)

    def remove(self, number: int) -> None:
        """Close a segment and know of it no more."""
        self.close(number)
        del self._held[number]

    def discard(self, number: int) -> None:
        """Know no more of a segment that may be read right now: it is closed by :meth:`close_discarded`."""
        held = self._held.pop(number, None)
        if held is not None:
            self._discarded.append(held)

    def close_discarded(self) -> None:
        """Close what was discarded, in the turn of shipping: closed during a read, it would lead to another file."""
        while self._discarded:
            os.close(self._discarded.pop())

    def close_all(self) -> None:
        """Close every segment, at the end."""
        self.close_discarded()
        for held in self._held.values():
            if held is not None:
                os.close(held)
        self._held.clear()


def _numbers_in(folder: Path) -> list[int]:
    """Return the numbers of the files that a spool can have written, and leave every other one alone."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if _NUMBER.fullmatch(path.stem))
