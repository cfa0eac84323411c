"""Where the suite's own Postgres keeps its databases: in memory where the machine has room there, else on the disk.

A database is some three hundred files, and each test makes one and deletes it. Before an ext4 without a journal, which
virtual machines often have, makes a file, it looks at every one nearby that was deleted within minutes: after a hundred
tests a database took a third of a second of the system's time and more, and anybody's files beside it took longer too.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
DISK = Path("/tmp")
ROOM_BYTES = 2 * 2**30
"""What has to be free: a server may take 400 MB (256 of write-ahead log, databases, copied programs); four start."""
ABANDONED_SECONDS = 3600.0


@contextmanager
def server_folder(memory: Path = MEMORY, disk: Path = DISK, room_bytes: int = ROOM_BYTES) -> Iterator[Path]:
    """Give a new folder that an unprivileged account can reach, and delete it with all that is in it."""
    _delete_abandoned(memory)
    folder = Path(tempfile.mkdtemp(prefix="us-pg-", dir=chosen_disk(memory, disk, room_bytes)))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chosen_disk(memory: Path = MEMORY, disk: Path = DISK, room_bytes: int = ROOM_BYTES) -> Path:
    """Return in which of the two folders databases are kept."""
    return memory if memory.is_dir() and is_fit(os.statvfs(memory), room_bytes) else disk


def is_fit(found: os.statvfs_result, room_bytes: int) -> bool:
    """Whether a file system has the room and lets programs run."""
    # Postgres' programs are copied beside its data where its account cannot reach them, as in a home of root.
    return found.f_bavail * found.f_frsize >= room_bytes and not found.f_flag & os.ST_NOEXEC


def _delete_abandoned(memory: Path) -> None:
    """Give back the memory that killed runs left taken; a Postgres without its folder ends itself within a minute."""
    for lock in memory.glob("us-pg-*/pg/owner.lock"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > ABANDONED_SECONDS and not _is_held(lock):
                shutil.rmtree(lock.parents[1], ignore_errors=True)


def _is_held(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
