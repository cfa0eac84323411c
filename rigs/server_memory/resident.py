"""What processes take of memory, by another table of the kernel than the one that agents read.

Resident and not proportional sizes: those are divided with every other process of the machine that has the same
libraries, and differ with what else runs.
"""

import time
from pathlib import Path
from typing import Final

SETTLED_BYTES: Final = 1_048_576
LOOK_SECONDS: Final = 0.5


def resident_bytes(pid: int) -> int:
    """Return what is resident of a process and of all that it has started."""
    total = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        total += sum(int(line.split()[1]) * 1_024 for line in lines if line.startswith("Rss:"))
    return total


def settled_resident_bytes(pid: int, seconds: float = 20.0) -> int:
    """Return it once two looks in a row differ by less than a MiB, or after so many seconds."""
    give_up = time.monotonic() + seconds
    before = resident_bytes(pid)
    while True:
        time.sleep(LOOK_SECONDS)
        now = resident_bytes(pid)
        if abs(now - before) < SETTLED_BYTES or time.monotonic() > give_up:
            return now
        before = now


def tree(pid: int) -> list[int]:
    """Return a process and all that it has started, as far as they run still."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            found += tree(int(child))
    return found
