"""A folder of one run on local disk, which the next run deletes if this one is killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def run_folder(prefix: str) -> Iterator[Path]:
    """Make a folder in ``TMPDIR``, and delete it at the end, with those that killed runs of this user left there.

    A run holds a lock on its folder, which ends with its process: so no folder of a run that is under way is deleted.

    Args:
        prefix: What the names of these folders begin with, and no other program's do.
    """
    _delete_left(prefix)
    folder, lock = _made(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made(prefix: str) -> tuple[Path, int]:
    """Return a new folder and its lock; another one where another run took it for left over in between."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(OSError):
            lock = _locked(folder)
            if lock is not None:
                if folder.exists():
                    return folder, lock
                os.close(lock)


def _delete_left(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            lock = _locked(folder)
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return the lock of a folder of this user's; ``None`` where a run has it, or it is another user's."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(opened).st_uid == os.getuid():
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return opened
    except BlockingIOError:
        pass
    os.close(opened)
    return None
