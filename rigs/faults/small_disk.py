"""A disk that is soon full: a small tmpfs, where this machine lets us mount one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rigs.faults.not_here import NotHere

MOUNT_SECONDS = 10


@contextmanager
def small_disk(folder: Path, size: str, owner: int | None = None) -> Iterator[Path]:
    """Mount a tmpfs of this size, such as ``96k``, for the length of a block.

    Raises:
        NotHere: Mounting needs root, or is forbidden.
    """
    if os.geteuid() != 0:
        raise NotHere("mounting a tmpfs needs root")
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode=0700" + (f",uid={owner},gid={folder.stat().st_gid}" if owner is not None else "")
    done = _run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)])
    if done.returncode != 0:
        raise NotHere(f"a tmpfs cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        if _run(["umount", str(folder)]).returncode != 0:
            _run(["umount", "-l", str(folder)])


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=MOUNT_SECONDS, check=False)
