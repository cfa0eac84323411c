"""System calls that change the disk, as one object: a test records them, or lets them fail."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
# macOS has no fdatasync; fsync is the closest.
_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class DiskFiles:
    """Each method is one change, or one sync, and raises ``OSError`` as the system call does. It reads nothing."""

    write = staticmethod(os.write)
    """Append bytes; returns how many were written. The system call itself, since it is on the request path."""

    def create(self, path: Path) -> int:
        """Create a file to append to and to read from, for its owner alone; return its descriptor."""
        return os.open(path, _NEW, 0o600)

    def cut(self, file: int, end: int) -> None:
        """Let an open file end at this offset."""
        os.ftruncate(file, end)

    def empty(self, path: Path) -> None:
        """Free all bytes of a file, which keeps its name."""
        os.truncate(path, 0)

    def allocate(self, file: int, size: int) -> None:
        """Take room for an empty file, which no other file gets then."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)
        elif self.write(file, bytes(size)) < size:
            raise OSError("no room")

    def delete(self, path: Path) -> None:
        """Delete a file."""
        path.unlink()

    def replace(self, path: Path, to: Path) -> None:
        """Give a file the name of another one in the same folder, which is gone then."""
        path.replace(to)

    def make_folder(self, path: Path) -> None:
        """Make a folder."""
        path.mkdir()

    def delete_folder(self, path: Path) -> None:
        """Delete an empty folder."""
        path.rmdir()

    def sync(self, file: int) -> None:
        """Return when an open file's bytes and length survive a power cut."""
        _sync_data(file)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in a folder survive a power cut."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_beginning_with(header: bytes, path: Path, files: DiskFiles) -> int:
    """Create a file as :meth:`DiskFiles.create` does, which has this header, or none at all.

    Raises:
        OSError: The disk fails, or has no room for the header (``ENOSPC``).
    """
    file = files.create(path)
    try:
        _write_whole(header, file, files)
    except OSError:
        os.close(file)
        with suppress(OSError):
            files.delete(path)
        raise
    return file


def _write_whole(header: bytes, file: int, files: DiskFiles) -> None:
    if files.write(file, header) < len(header):
        raise OSError(errno.ENOSPC, "no room for the header of a segment")


def make_folders(directory: Path, files: DiskFiles) -> None:
    """Make a folder and those above it that are missing, each with a name that survives a power cut."""
    if directory.is_dir():
        return
    make_folders(directory.parent, files)
    with suppress(FileExistsError):  # another worker was faster
        files.make_folder(directory)
    files.sync_folder(directory.parent)
