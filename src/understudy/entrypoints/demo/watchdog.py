"""Ends the demo's processes when the demo itself was killed and could not.

Run as a file by a bare interpreter (standard library only): it reads lines ``<pid> <signal>`` from its standard input,
which the demo holds open. The end of that input means that the demo is gone; what is still alive then gets its signal,
and SIGKILL five seconds later. It works on every system with pipes, and for servers that run as another user, for both
of which Linux' parent-death signal does not.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.05


class Watched(NamedTuple):
    """A process, the signal that asks it to end, and when it started (so that a reused pid is not mistaken for it)."""

    pid: int
    signal_number: int
    started: str


def _start_mark(pid: int) -> str:
    """Return a mark of the process's start; empty where the system does not tell, ``gone`` when it has ended."""
    if not Path("/proc/self/stat").exists():
        return "" if _exists(pid) else "gone"
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone"
    state, started = fields[0], fields[19]  # fields 3 and 22 of proc(5); the second is the name, in parentheses
    return "gone" if state == "Z" else started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def watch(lines: Iterable[str]) -> list[Watched]:
    """Return what the lines named, when they have ended."""
    watched: list[Watched] = []
    for line in lines:
        pid, number = map(int, line.split())
        watched.append(Watched(pid, number, _start_mark(pid)))
    return watched


def end_all(watched: Iterable[Watched], grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask every process that still lives to end, the last one started first, then make it."""
    alive = [process for process in watched if process.started != "gone"]
    for process in reversed(alive):
        _send(process, process.signal_number)
    give_up = time.monotonic() + grace_seconds
    while any(map(_lives, alive)) and time.monotonic() < give_up:
        time.sleep(POLL_SECONDS)
    for process in alive:
        _send(process, signal.SIGKILL)


def _lives(process: Watched) -> bool:
    return _start_mark(process.pid) == process.started


def _send(process: Watched, number: int) -> None:
    if _lives(process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


if __name__ == "__main__":
    end_all(watch(sys.stdin))
