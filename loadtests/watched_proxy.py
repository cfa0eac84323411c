"""The proxy itself, in a process that can be looked into.

On SIGUSR1 it says how many asyncio tasks it has, in the file that TASKS_FILE names. From SIGUSR2 to the next SIGUSR2 it
samples which of its functions runs, each time it has used SAMPLE_SECONDS of processor time, and then writes
:data:`Samples` into the file that SAMPLES_FILE names.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

from understudy.entrypoints.cli.main import main

TASKS_FILE = "LOADTESTS_TASKS_FILE"
SAMPLES_FILE = "LOADTESTS_SAMPLES_FILE"
SAMPLE_SECONDS = 0.002
_DEEPEST = 12
"""Functions of a stack that are noted."""

Samples = Counter[str]
"""How often each stack was seen: its functions, the innermost first, with ``;`` between them; each as ``path:name``."""


def tell(_number: int, _frame: FrameType | None) -> None:
    """Say how many tasks there are."""
    _write(TASKS_FILE, str(len(asyncio.all_tasks())))


class Sampler:
    """Notes the main thread's stack whenever the process has used enough processor time."""

    def __init__(self) -> None:
        self._seen: Samples = Counter()
        self._is_on = False

    def turn(self, _number: int, _frame: FrameType | None) -> None:
        """Begin, or end and write what was seen."""
        self._is_on = not self._is_on
        seconds = SAMPLE_SECONDS if self._is_on else 0.0
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
        if not self._is_on:
            _write(SAMPLES_FILE, json.dumps(self._seen))
            self._seen.clear()

    def note(self, _number: int, frame: FrameType | None) -> None:
        """Note one stack."""
        functions: list[str] = []
        while frame is not None and len(functions) < _DEEPEST:
            functions.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
            frame = frame.f_back
        self._seen[";".join(functions)] += 1


def _write(variable: str, text: str) -> None:
    """Write beside the file and move it there, so that nobody reads half of it."""
    path = Path(os.environ[variable])
    written = path.with_suffix(".new")
    written.write_text(text)
    written.replace(path)


if __name__ == "__main__":
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, tell)
    signal.signal(signal.SIGUSR2, sampler.turn)
    signal.signal(signal.SIGPROF, sampler.note)
    main()
