"""Opens a file that a person names, and nothing that only looks like one: a pipe would wait, a device has no end."""

import os
from errno import EISDIR, ENXIO
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; the caller closes it.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without waiting for a pipe's writer
    mode = os.fstat(descriptor).st_mode
    if not S_ISREG(mode):
        os.close(descriptor)
        raise OSError(*((EISDIR, "it is a folder") if S_ISDIR(mode) else (ENXIO, "it is a pipe or a device")))
    return os.fdopen(descriptor, "rb")
