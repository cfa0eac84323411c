"""The files through which a proxy's workers share their metrics, and what becomes of those of dead workers.

Each worker has files of its own, and the library adds up whatever lies there. The files of every worker that ever died
would make a scrape longer with each of them; so what they counted is added to one file for all of them. Whoever reads
the files meanwhile would see a count twice or not at all, so readers and the one who adds take turns.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client import multiprocess
from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.registry import Collector

_LOCK = "lock"
_ADDED_UP = ("counter", "histogram")
"""Kinds of metrics whose files are sums; gauges go with their worker."""
_OF_THE_DEAD = "dead"


class SharedFiles(Collector):
    """What all workers together counted.

    Args:
        folder: Where their files are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Read the files of all workers, dead ones included."""
        with _turn(self._folder, fcntl.LOCK_SH):
            files = [str(path) for path in self._folder.glob("*.db") if _is_readable(path)]
            return list(multiprocess.MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]  # the package has none


def bury(folder: Path, pid: int) -> bool:
    """Add what a dead worker counted to what all dead ones did, and remove its files; gauges of its own are dropped.

    Returns:
        Whether it was done; not so while somebody reads the files.
    """
    with suppress(BlockingIOError), _turn(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for kind in _ADDED_UP:
            own = folder / f"{kind}_{pid}.db"
            if own.exists():
                if _is_readable(own):
                    _add(own, folder / f"{kind}_{_OF_THE_DEAD}.db")
                own.unlink()
        multiprocess.mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]  # the package has none
        return True
    return False


def _add(path: Path, to: Path) -> None:
    """Add a file to another, which is replaced as a whole: whoever ends in the middle of this has added nothing."""
    new = to.with_suffix(".new")
    new.unlink(missing_ok=True)
    if to.exists():
        new.write_bytes(to.read_bytes())
    together = MmapedDict(str(new))  # type: ignore[no-untyped-call]  # as above
    try:
        for key, value, timestamp, _ in MmapedDict.read_all_values_from_file(str(path)):  # type: ignore[no-untyped-call]
            before, _ = together.read_value(key)  # type: ignore[no-untyped-call]
            together.write_value(key, before + value, timestamp)  # type: ignore[no-untyped-call]
    finally:
        together.close()  # type: ignore[no-untyped-call]
    new.replace(to)


def _is_readable(path: Path) -> bool:
    """Whether a file has at least its own length: a worker that was killed as it made it left it without."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            return len(head) == 4 and struct.unpack("i", head)[0] <= os.fstat(file.fileno()).st_size  # noqa: PLR2004
    except FileNotFoundError:
        return False


@contextmanager
def _turn(folder: Path, kind: int) -> Iterator[None]:
    """Hold the folder's lock; the kernel frees that of a process that is killed."""
    with (folder / _LOCK).open("ab") as lock:
        fcntl.flock(lock, kind)
        yield
