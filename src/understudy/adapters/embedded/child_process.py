"""Processes of embedded servers, and ending them for certain."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

POLL_SECONDS = 0.01
PS_SECONDS = 10.0


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not. Where PID 1 does not reap, a crashed server stays one for ever."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        state = shown_by_ps("state", pid)
        return bool(state) and not state.startswith("Z")
    return stat.rpartition(")")[2].split()[0] != "Z"


def shown_by_ps(column: str, pid: int) -> str:
    """Return what ``ps`` shows of a process, or nothing when there is none; for systems without ``/proc`` (macOS)."""
    command = ["ps", "-o", f"{column}=", "-p", str(pid)]  # from PATH
    return subprocess.run(command, capture_output=True, text=True, timeout=PS_SECONDS, check=False).stdout.strip()


def end(pid: int, signals: Iterable[tuple[signal.Signals, float]], child: subprocess.Popen[bytes] | None) -> None:
    """Send each signal in turn until the process is gone, waiting the seconds beside it.

    Args:
        pid: The process.
        signals: Signals, from gentle to final, each with the wait for its effect.
        child: The process if this one started it, so that it is reaped; else ``None``.
    """
    if child is not None and child.poll() is not None:
        return  # its number may be another process by now
    for number, wait_seconds in signals:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            break
        if _gone_within(pid, wait_seconds, child):
            break


def _gone_within(pid: int, wait_seconds: float, child: subprocess.Popen[bytes] | None) -> bool:
    if child is not None:
        # Only wait() is certain: a process whose first thread has ended looks like a zombie while its others still run.
        try:
            child.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True
    give_up = time.monotonic() + wait_seconds
    while time.monotonic() < give_up:
        if not is_alive(pid):
            return True
        time.sleep(POLL_SECONDS)
    return False
