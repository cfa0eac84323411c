"""This machine: who runs on which core, and how much processor time a server has used."""

import os
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SERVER_CORE = 0
"""Where the server under test runs, alone."""
LOAD_CORE = 1
"""Where everything else runs: load, model servers, upstreams, Postgres."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_USER, _CHILDREN_SYSTEM = 11, 14
"""Fields of ``/proc/PID/stat`` behind the command's name: utime, stime, and the same of children waited for."""


def what_is_missing(programs: Iterable[str] = ("wrk", "nginx")) -> list[str]:
    """Return what keeps a benchmark that needs these programs from running here, each with its remedy."""
    found = [
        f"{program}: install the Debian package {program} (apt-get install {program})"
        for program in programs
        if find_program(program) is None
    ]
    if not Path("/proc/self/task").is_dir():
        return [*found, "/proc: the benchmark runs on Linux only"]
    if not {SERVER_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        found.append("two processor cores, number 0 and 1: one for the server under test, one for the load")
    return found


def find_program(name: str) -> str | None:
    """Return a program's path; Debian keeps nginx where only root's ``PATH`` looks."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Bind this thread to a core; processes started inside stay there with all their threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def moved_to_core(pid: int, core: int) -> Iterator[None]:
    """Bind a running process and all below it to a core meanwhile; what they start inherits that."""
    before = {one: os.sched_getaffinity(one) for one in tree_of(pid)}
    for one in before:
        _move(one, {core})
    try:
        yield
    finally:
        for one in tree_of(pid):
            _move(one, before.get(one, before[pid]))


@contextmanager
def giving_way(pid: int) -> Iterator[None]:
    """Let a running process and all below it run only when nothing else on its core wants to, and what they start too.

    A lower priority alone (``nice``) is not enough: who wakes up beside such a process still waits for its slice of
    time to end, some 3 ms.
    """
    before = {one: os.sched_getscheduler(one) for one in threads_of(pid)}
    for one in before:
        _set_policy(one, os.SCHED_IDLE)
    try:
        yield
    finally:
        for one in threads_of(pid):
            _set_policy(one, before.get(one, before[pid]))


def _set_policy(thread: int, policy: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.sched_setscheduler(thread, policy, os.sched_param(0))


def _move(pid: int, cores: set[int]) -> None:
    with suppress(ProcessLookupError):
        os.sched_setaffinity(pid, cores)


@contextmanager
def a_folder(prefix: str) -> Iterator[Path]:
    """A folder that the servers' unprivileged accounts can reach."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def threads_cpu_seconds(pid: int) -> dict[int, float]:
    """Return user and system time of each thread of a process, by the thread's id; the main thread's is ``pid``."""
    found: dict[int, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            found[int(task.name)] = sum(map(int, fields[_USER : _USER + 2])) / _TICKS_PER_SECOND
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return user and system time of these processes and all below them, ended ones included."""
    return sum(_cpu_seconds_of_tree(pid) for pid in pids)


def ended_children_cpu_seconds() -> float:
    """Return user and system time of every child of this process that was waited for, in microseconds' steps."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_of(pid: int) -> list[int]:
    """Return a process and all below it."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [pid, *(one for child in _children_of(pid) for one in tree_of(child))]
    return []


def threads_of(pid: int) -> list[int]:
    """Return the threads of a process and of all below it."""
    found: list[int] = []
    for one in tree_of(pid):
        with suppress(FileNotFoundError):
            found.extend(int(task.name) for task in Path(f"/proc/{one}/task").iterdir())
    return found


def resident_bytes(pid: int) -> int:
    """Return the memory that a process and all below it have in use."""
    pages = 0
    for one in tree_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_descriptors(pid: int) -> int:
    """Return how many files and sockets a process and all below it have open."""
    count = 0
    for one in tree_of(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            count += sum(1 for _ in Path(f"/proc/{one}/fd").iterdir())
    return count


def _cpu_seconds_of_tree(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        own = sum(map(int, fields[_USER : _CHILDREN_SYSTEM + 1])) / _TICKS_PER_SECOND
        return own + sum(_cpu_seconds_of_tree(child) for child in _children_of(pid))
    return 0.0


def _children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listed in lists for child in listed.read_text().split()]
