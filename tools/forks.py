"""A plugin of pytest: run the tests in several processes, which are forked once all tests are collected.

    python -m pytest -p tools.forks --forks 6 -p no:xdist tests

A worker of pytest-xdist is an interpreter of its own that imports and collects every test again: eight seconds of a
processor for each of six, where a fork takes some milliseconds. Tests marked ``alone`` are run by one more worker after
all others have ended.

The process that forks runs no test and starts no thread: a lock that a thread holds at the fork stays closed in each
worker.
"""

import fcntl
import mmap
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

ALONE = "alone"
MAX_CORES = 4
_NUMBER_BYTES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=workers_of, default=0, help="run the tests in so many forked processes; cores: one for each"
    )


def workers_of(text: str) -> int:
    """Return how many workers ``--forks`` asks for."""
    return min(MAX_CORES, os.cpu_count() or 1) if text == "cores" else int(text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in workers, unless nothing is to be run or no ``--forks`` was given."""
    config = session.config
    if not config.option.forks or config.option.collectonly or session.testsfailed:
        return None  # pytest's own loop says what there is to say
    together = [item for item in session.items if item.get_closest_marker(ALONE) is None]
    alone = [item for item in session.items if item.get_closest_marker(ALONE) is not None]
    for items, workers in ((together, config.option.forks), (alone, 1)):
        count = min(workers, len(items))
        with Slices(len(items), count) as slices:
            Run(session, items, slices).to_its_end(count)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


class Slices:
    """Which tests each worker has yet to run: a slice of their order, in memory that forked processes share.

    A worker whose slice is empty takes the later half of the longest other one, so tests of one file, which may share
    what they need, mostly stay with one worker.
    """

    def __init__(self, tests: int, workers: int) -> None:
        self._workers = workers
        self._numbers = memoryview(mmap.mmap(-1, 2 * _NUMBER_BYTES * max(workers, 1))).cast("i")
        # The kernel opens its lock when the holder ends, however that was.
        self._locked = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        for worker in range(workers):
            self._put(worker, worker * tests // workers, (worker + 1) * tests // workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._locked.close()

    def take(self, worker: int) -> int | None:
        """Return the number of the worker's next test, which is its own from now on, or ``None``: there is none."""
        with self._alone():
            number = self._first(worker)
            if number is not None:
                self._put(worker, number + 1, self._of(worker)[1])
            return number

    def following(self, worker: int) -> int | None:
        """Return which test the worker's next :meth:`take` will give; no other worker can take that one."""
        with self._alone():
            return self._first(worker)

    def clear(self) -> None:
        """Leave no test to any worker."""
        with self._alone():
            for worker in range(self._workers):
                self._put(worker, 0, 0)

    def _first(self, worker: int) -> int | None:
        begin, end = self._of(worker)
        if begin == end:
            longest = max(range(self._workers), key=self._length)
            if self._length(longest) <= 1:  # its worker may have been told that this one follows
                return None
            first, end = self._of(longest)
            begin = first + (end - first + 1) // 2
            self._put(longest, first, begin)
            self._put(worker, begin, end)
        return begin

    def _length(self, worker: int) -> int:
        begin, end = self._of(worker)
        return end - begin

    def _of(self, worker: int) -> tuple[int, int]:
        return self._numbers[2 * worker], self._numbers[2 * worker + 1]

    def _put(self, worker: int, begin: int, end: int) -> None:
        self._numbers[2 * worker], self._numbers[2 * worker + 1] = begin, end

    @contextmanager
    def _alone(self) -> Iterator[None]:
        fcntl.lockf(self._locked, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._locked, fcntl.LOCK_UN)


class Worker(NamedTuple):
    """A forked process, as the one that forked it sees it."""

    number: int
    pid: int
    begun: list[int | None]
    """The numbers of the tests that it said it begins, and ``None`` once there was none left."""


def _refuse_lost_threads() -> None:
    """Say that a test file had polars compute while it was collected: workers would wait for its threads for ever."""
    names = [(thread / "comm").read_text().strip() for thread in Path("/proc/self/task").iterdir()]
    if any(name.startswith("polars-") and name[7:].isdigit() for name in names):
        raise pytest.UsageError("a test file had polars compute while it was collected: have it compute within a test")


class Run:
    """The tests of a session that are run side by side, from the first fork to the end of the last worker."""

    def __init__(self, session: pytest.Session, items: Sequence[pytest.Item], slices: Slices) -> None:
        self._session = session
        self._items = items
        self._slices = slices
        self._workers: dict[Connection, Worker] = {}

    def to_its_end(self, workers: int) -> None:
        """Start so many workers, and report what they say until each has ended."""
        _base_folder(self._session.config)  # made once, before there are two who would
        _refuse_lost_threads()
        for number in range(workers):
            self._fork(number)
        try:
            self._listen()
        finally:
            # Ctrl-C reaches the workers too; what stopped this process alone lets each end its test.
            self._slices.clear()
            for connection, worker in self._workers.items():
                connection.close()
                os.waitpid(worker.pid, 0)

    def _fork(self, number: int) -> None:
        ours, theirs = Pipe(duplex=False)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():
            # From 3.12 on Python says so of any thread: those of numpy and pyarrow are made for forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            ours.close()
            _work(self._session, self._items, self._slices, number, theirs)
        theirs.close()
        self._workers[ours] = Worker(number, pid, [])

    def _listen(self) -> None:
        while self._workers:
            for connection in wait(list(self._workers)):
                assert isinstance(connection, Connection)
                told = _next_of(connection)
                if told is None:
                    self._ended(connection)
                else:
                    self._take(self._workers[connection], *told)
            if self._session.shouldfail or self._session.shouldstop:
                self._slices.clear()

    def _take(self, worker: Worker, kind: str, said: Any) -> None:
        hook = self._session.config.hook
        if kind == "begins":
            worker.begun.append(said)
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=said)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=said)
        else:
            self._session.shouldfail = f"worker {worker.number} cannot go on:\n{said}"

    def _ended(self, connection: Connection) -> None:
        """Wait for a process that has nothing more to say; for one that ended within a test start another."""
        worker = self._workers.pop(connection)
        connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        last = worker.begun[-1] if worker.begun else None
        if last is None:
            if code or not worker.begun:
                when = "after its last test" if worker.begun else "before its first test"
                self._session.shouldfail = f"worker {worker.number} ended with {code} {when}"
            return
        item = self._items[last]
        said = f"the worker that ran this test ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        if not self._session.shouldfail:
            self._fork(worker.number)


def _next_of(connection: Connection) -> tuple[str, Any] | None:
    """Return what the process at the other end says next, or ``None``: it has ended."""
    try:
        told: tuple[str, Any] = connection.recv()
    except EOFError:
        return None
    return told


class _Teller:
    """What a worker's pytest reports, told to the process that forked it."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self._config = config
        self._to = to

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._to.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        told = warnings.WarningMessage(text, Warning, warning_message.filename, warning_message.lineno)
        said = {"warning_message": told, "when": when, "nodeid": nodeid, "location": location}
        self._to.send(("warning", said))


def _work(session: pytest.Session, items: Sequence[pytest.Item], slices: Slices, number: int, to: Connection) -> None:
    """Run tests in a process that was just forked, take down what they share, and end the process."""
    try:
        _begin_worker(session.config, number, to)
        try:
            _run_tests(session, items, slices, number, to)
        finally:
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
            session.config._ensure_unconfigure()  # noqa: SLF001 - as pytest's own session ends
    except BaseException:  # noqa: BLE001 - told to whom the tests are reported by
        to.send(("failed", traceback.format_exc()))
    finally:
        to.close()
        os._exit(0)


def _run_tests(
    session: pytest.Session, items: Sequence[pytest.Item], slices: Slices, number: int, to: Connection
) -> None:
    while (index := slices.take(number)) is not None:
        following = slices.following(number)
        to.send(("begins", index))
        nextitem = None if following is None else items[following]
        session.config.hook.pytest_runtest_protocol(item=items[index], nextitem=nextitem)
    to.send(("begins", None))


def _begin_worker(config: pytest.Config, number: int, to: Connection) -> None:
    """Give the process what it must not share with its siblings."""
    config.workerinput = {"workerid": f"fork{number}"}  # type: ignore[attr-defined]  # as plugins know a worker
    config.forked = True  # type: ignore[attr-defined]  # for the tests' own hooks
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Teller(config, to))
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture.is_globally_capturing() or capture._global_capturing is not None:  # noqa: SLF001 - see below
        # Its files are open in every worker, at one place.
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    folder = _base_folder(config) / f"fork{number}"
    folder.mkdir(mode=0o700, exist_ok=True)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]  # noqa: SLF001 - as the option does


def _base_folder(config: pytest.Config) -> Path:
    folder: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # noqa: SLF001 - as xdist asks
    return folder
