"""A reserve of the spool: room on the volume for its next segment, which is given up when the volume is full."""

import os
from contextlib import suppress
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles
from understudy.adapters.disk.spool_folder import RESERVE

_SHARE_OF_VOLUME = 1 / 8
"""Of a small volume: what is reserved takes no row otherwise."""


class Reserve:
    """A file in the spool's folder that holds room until it is deleted.

    Args:
        files: Changes the disk.
        size: Bytes; less on a small volume.
    """

    def __init__(self, files: DiskFiles, size: int) -> None:
        self._files = files
        self._size = size
        self._path: Path | None = None

    def fill(self, folder: Path) -> None:
        """Take room for the spool in this folder, unless it has its reserve. Without room nothing is taken."""
        path = folder / RESERVE
        if path == self._path:
            return
        with suppress(OSError):
            volume = os.statvfs(folder)
            size = min(self._size, int(volume.f_blocks * volume.f_frsize * _SHARE_OF_VOLUME))
            if path.exists():
                if path.stat().st_size >= size:  # the last process of this folder left it
                    self._path = path
                    return
                self._files.delete(path)
            if self._take(path, size):
                self._path = path

    def give_up(self) -> bool:
        """Free the reserve's room; ``False`` when there is none."""
        path, self._path = self._path, None
        if path is None:
            return False
        with suppress(OSError):
            self._files.delete(path)
            return True
        return False

    def _take(self, path: Path, size: int) -> bool:
        file = self._files.create(path)
        try:
            self._files.allocate(file, size)
        except OSError:
            self._files.delete(path)
            return False
        finally:
            os.close(file)
        return True
