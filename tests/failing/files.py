"""A disk that does what a real one does only when it fails: it is full after so many bytes, or refuses a change."""

import errno
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from understudy.adapters.disk.files import DiskFiles


class FailingFiles(DiskFiles):
    """A disk with room for so many bytes, whose other changes fail while they are named in :attr:`refused`.

    Args:
        room: Bytes that can be written; nothing gives any of them back.
        refused: Names of methods.
        error: What a refused change is refused with.
    """

    def __init__(self, room: int = 1 << 40, refused: Collection[str] = (), error: int = errno.EIO) -> None:
        self.room = room
        self.refused = set(refused)
        self.error = error

    def write(self, file: int, block: bytes) -> int:  # type: ignore[override]
        self._check("write")
        landed = min(len(block), self.room)
        if not landed and block:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= landed
        return os.write(file, block[:landed])

    def allocate(self, file: int, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(file, size)

    def create(self, path: Path) -> int:
        self._check("create")
        return super().create(path)

    def cut(self, file: int, end: int) -> None:
        self._do("cut", super().cut, file, end)

    def empty(self, path: Path) -> None:
        self._do("empty", super().empty, path)

    def delete(self, path: Path) -> None:
        self._do("delete", super().delete, path)

    def make_folder(self, path: Path) -> None:
        self._do("make_folder", super().make_folder, path)

    def sync(self, file: int) -> None:
        self._do("sync", super().sync, file)

    def _do(self, name: str, change: Callable[..., None], *given: Any) -> None:
        self._check(name)
        change(*given)

    def _check(self, name: str) -> None:
        if name in self.refused:
            raise OSError(self.error, os.strerror(self.error))
