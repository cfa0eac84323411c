"""``ArchiveStore`` in a folder, with fsync: files must survive a power cut before their rows are dropped."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from understudy.core.prediction_log.archive_plan import archive_key
from understudy.errors import ArchiveUnavailable

T = TypeVar("T")
_UNFINISHED = ".unfinished-"
"""Prefix of half-written files: readers of Hive layouts ignore names that begin with a dot."""


class FolderArchive:
    """Objects are files below a folder, which is made when the first one is stored.

    Args:
        root: An absolute path on a persistent disk, which ``understudy log query`` can read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        return f"file://{quote(str(self.root))}"

    @property
    def local_root(self) -> Path | None:
        return self.root

    async def put(self, key: str, source: Path) -> None:
        target = self._path_of(key)
        await self._in_thread(lambda: _put(source, target, self.root))

    async def fetch(self, key: str, target: Path) -> bool:
        source = self._path_of(key)
        return await self._in_thread(lambda: _copied(source, target))

    async def delete(self, keys: Iterable[str]) -> None:
        wanted = [self._path_of(key) for key in keys]

        def delete() -> None:
            for path in wanted:
                path.unlink(missing_ok=True)
                _unfinished(path).unlink(missing_ok=True)

        await self._in_thread(delete)

    async def keys(self) -> Sequence[str]:

        def found() -> list[str]:
            files = (path for path in self.root.rglob("*") if path.is_file() and not path.name.startswith("."))
            return sorted(path.relative_to(self.root).as_posix() for path in files)

        return await self._in_thread(found)

    def _path_of(self, key: str) -> Path:
        return self.root / archive_key(key)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as problem:
            raise ArchiveUnavailable(f"{self.root}: {problem.strerror or problem}") from problem


def _put(source: Path, target: Path, root: Path) -> None:
    """Copy a file atomically; it is on the disk itself when this returns."""
    made = _make_folders(target.parent, root)
    half = _unfinished(target)
    with source.open("rb") as reader, half.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1_048_576)
        writer.flush()
        os.fsync(writer.fileno())
    half.replace(target)
    # A name is on the disk once its folder is synced, and a new folder once its parent is.
    for folder in [target.parent, *made]:
        _sync_folder(folder)


def _make_folders(folder: Path, root: Path) -> list[Path]:
    """Create a folder and its missing parents; return the folders with a new entry."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    # Existing ones too: the process that made them may have died before they were synced.
    inside = [one for one in folder.parents if one.is_relative_to(root)]
    return list(dict.fromkeys([*(one.parent for one in missing), *inside]))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unfinished(target: Path) -> Path:
    return target.with_name(f"{_UNFINISHED}{target.name}")


def _copied(source: Path, target: Path) -> bool:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        if not target.parent.exists():
            raise
        return False
    return True
