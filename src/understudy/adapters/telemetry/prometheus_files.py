"""The files through which a proxy's workers share their metrics; those of exited workers are merged.

Each worker has files of its own, and the library adds up all files in the folder. The files of every worker that ever
exited would make a scrape longer with each of them, so their counts are merged into one file. A scrape meanwhile would
see a count twice or not at all, so scrapes and merges exclude each other by a file lock.
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
_EXITED = "dead"


class SharedFiles(Collector):
    """The counts of all workers together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Read the files of all workers, exited ones included."""
        with _turn(self._folder, fcntl.LOCK_SH):
            files = [str(path) for path in self._folder.glob("*.db") if _is_readable(path)]
            return list(multiprocess.MultiProcessCollector.merge(files))  # type: ignore[no-untyped-call]  # the package has none


def merge_exited(folder: Path, pid: int) -> bool:
    """Merge the metrics of an exited worker into those of all exited ones and remove its files; its gauges are dropped.

    Returns:
        Whether it was done; ``False`` while a scrape reads the files.
    """
    with suppress(BlockingIOError), _turn(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
        for kind in _ADDED_UP:
            own = folder / f"{kind}_{pid}.db"
            if own.exists():
                if _is_readable(own):
                    _add(own, folder / f"{kind}_{_EXITED}.db")
                own.unlink()
        multiprocess.mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]  # the package has none
        return True
    return False


def _add(path: Path, to: Path) -> None:
    """Add a file to another, which is replaced as a whole: a process killed in the middle of this has added nothing."""
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
    """Whether a file has the length in its header; one whose worker was killed while creating it has not."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
            return len(head) == 4 and struct.unpack("i", head)[0] <= os.fstat(file.fileno()).st_size  # noqa: PLR2004
    except FileNotFoundError:
        return False


@contextmanager
def _turn(folder: Path, kind: int) -> Iterator[None]:
    """Hold the folder's lock; the kernel releases it when the process is killed."""
    with (folder / _LOCK).open("ab") as lock:
        fcntl.flock(lock, kind)
        yield
