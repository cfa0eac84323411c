"""How long a proxy's event loop is blocked, asked by a program beside it that also notices a machine that stands still.

``python -m rigs.faults.loop_watch PORT PID`` asks a proxy ``/livez`` every few milliseconds over one connection, until
its standard input ends, and prints what each answer took as JSON. It is a process of its own: in the one that sends the
load, each answer would wait for an interpreter's lock (GIL) that has nothing to do with the proxy.

An answer that is late says one of three things. The loop computed or waited, or the GIL was another thread's: then it
was blocked. The kernel had no core for the loop's thread, or for the one that had the GIL: it counts for each thread
how long it waited (``schedstat``). Or nothing ran at all, as on a virtual machine that is taken off its cores: then
this program, which only waits, wakes late as well.
"""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

PROBE_SECONDS = 0.005
"""Between two questions, and the step in which an answer is waited for."""
END_SECONDS = 10.0
_ASKED = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
_CHUNK_BYTES = 65_536
_SECONDS_PER_NANOSECOND = 1e-9


class Probe(NamedTuple):
    """One answer; all in seconds."""

    sent: float
    """By the monotonic clock."""
    seconds: float
    loop_waited: float
    """For a core: the thread of the loop."""
    other_waited: float
    """For a core: of the proxy's other threads, one of which may have the GIL, the one that waited longest."""
    watch_stalled: float
    """For a core, or for a machine that ran again: this program."""
    computed: float
    """By all threads of the proxy."""

    @property
    def blocked_seconds(self) -> float:
        """How long the loop was blocked: all but what the machine took, and never less than the proxy computed.

        A thread that waits for the GIL waits for no core meanwhile, so these two add up. This program's stall may have
        been at the same time: the longer one counts. On a machine that does nothing else there is little of either.
        """
        machine = max(self.loop_waited + self.other_waited, self.watch_stalled)
        return min(self.seconds, max(self.seconds - machine, self.computed))


@dataclass
class LoopWatch:
    """What a watch has found, once its block is over."""

    probes: list[Probe] = field(default_factory=list)

    def figures(self, since: float, until: float) -> dict[str, float]:
        """Return of probes sent in that time the longest block, the most computing, and the longest wait for an answer.

        Raises:
            ValueError: There are none.
        """
        seen = [probe for probe in self.probes if since <= probe.sent < until]
        return {
            "loop_block_ms_max": max(probe.blocked_seconds for probe in seen) * 1000,
            "loop_computed_ms_max": max(min(probe.seconds, probe.computed) for probe in seen) * 1000,
            "loop_probe_ms_max": max(probe.seconds for probe in seen) * 1000,
            "loop_probes": len(seen),
        }


@contextmanager
def watched(port: int, pid: int) -> Iterator[LoopWatch]:
    """Watch a proxy for the length of a block."""
    found = LoopWatch()
    arguments = [sys.executable, "-m", "rigs.faults.loop_watch", str(port), str(pid)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as watch:
        try:
            yield found
        except BaseException:
            watch.kill()
            raise
        said, _ = watch.communicate(timeout=END_SECONDS)
    found.probes += [Probe(*one) for one in json.loads(said)]


class _Thread:
    """How long a thread has waited for a core, as the kernel counts it; a thread that has ended waits no more."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / "schedstat", os.O_RDONLY)
        self._seconds = 0.0

    def waited_seconds(self) -> float:
        with suppress(ProcessLookupError):
            self._seconds = int(os.pread(self._file, 100, 0).split()[1]) * _SECONDS_PER_NANOSECOND
        return self._seconds


class _Threads:
    """The same of all threads of a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folder = Path(f"/proc/{pid}/task")
        self._known: dict[int, _Thread] = {}

    def waited_seconds(self) -> tuple[float, dict[int, float]]:
        """Return that of the first thread, and of each other one by its id."""
        for thread_id in map(int, os.listdir(self._folder)):  # noqa: PTH208 - a quarter of the time, 200 times a second
            if thread_id not in self._known:
                with suppress(FileNotFoundError):
                    self._known[thread_id] = _Thread(self._folder / str(thread_id))
        found = {thread_id: thread.waited_seconds() for thread_id, thread in self._known.items()}
        return found.pop(self._pid), found


class _Watch:
    """Probes a proxy.

    Args:
        port: Where it listens.
        pid: Its process, whose first thread has the loop.
    """

    def __init__(self, port: int, pid: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._threads, self._own = _Threads(pid), _Thread(Path("/proc/self"))
        self._clock = ~pid << 3 | 2  # the clock of a process's processor time: clock_getcpuclockid(3)

    def probe(self) -> Probe:
        """Ask once, and wait for the answer in short steps: one that ends late is a stall that is not the proxy's.

        Where this program itself waited for a core it was late in vain, but in the step in which the answer came.
        """
        computed, (loop_waited, others) = time.clock_gettime(self._clock), self._threads.waited_seconds()
        sent = time.monotonic()
        self._socket.sendall(_ASKED)
        stalled, answer = 0.0, b""
        while not _is_whole(answer):
            began, own_waited = time.monotonic(), self._own.waited_seconds()
            is_there = bool(select.select([self._socket], [], [], PROBE_SECONDS)[0])
            overslept = max(0.0, time.monotonic() - began - PROBE_SECONDS)
            own_waited = self._own.waited_seconds() - own_waited
            if is_there:
                stalled += max(overslept, own_waited)
                answer += self._read()
            else:
                stalled += max(0.0, overslept - own_waited)
        seconds = time.monotonic() - sent
        computed = time.clock_gettime(self._clock) - computed
        loop_after, others_after = self._threads.waited_seconds()
        other_waited = max((waited - others.get(one, 0.0) for one, waited in others_after.items()), default=0.0)
        return Probe(sent, seconds, loop_after - loop_waited, other_waited, stalled, computed)

    def _read(self) -> bytes:
        chunk = self._socket.recv(_CHUNK_BYTES)
        if not chunk:
            raise ConnectionError("the proxy ended the connection")
        return chunk


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(body) >= int(lengths[0].partition(b":")[2])


def main(port: int, pid: int, asked: IO[bytes]) -> None:
    """Probe until the input ends, and print what was found."""
    watch, found = _Watch(port, pid), []
    while not select.select([asked], [], [], PROBE_SECONDS)[0]:
        found.append(watch.probe())
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer)
