"""Notices when the machine stands still: a virtual one may be taken off its cores for seconds, with all that runs."""

import os
import threading
import time
from collections import deque

MAX_SECONDS = 0.4
"""Beyond what three workers on two cores cost a thread that only wants to wake."""
MAX_SECONDS_ALONE = 0.15
"""For a test beside which nothing else runs, and which judges times that are as short."""
STEP_SECONDS = 0.05


class MachineStoodStill(Exception):
    """A test failed while nothing ran, this process's own clock watch included; only that is run again."""


class Standstills:
    """A thread that sleeps in short steps and keeps when it was woken much too late.

    It needs no event loop, and a test that blocks its own does not delay it: what blocks waits, and lets threads run.
    """

    def __init__(self) -> None:
        self._found: deque[tuple[float, float]] = deque(maxlen=100)
        self._slept_at = time.monotonic()
        self._watched_by: int | None = None

    def watch(self) -> None:
        """Begin, unless this process has begun already; a forked one has no thread but the one that forked it."""
        if self._watched_by != os.getpid():
            self._watched_by = os.getpid()
            self._slept_at = time.monotonic()
            threading.Thread(target=self._watch, name="standstills", daemon=True).start()

    def longest_since(self, began: float, beyond: float = MAX_SECONDS) -> float:
        """Return the longest standstill that ended after ``began`` (monotonic seconds), in seconds.

        0 where none was longer than ``beyond``, of at least ``MAX_SECONDS_ALONE``.
        """
        now = time.monotonic()
        this_one = (now, now - self._slept_at)  # whoever asks may have been woken before the watch
        late = [seconds for ended, seconds in [*self._found, this_one] if ended > began and seconds > beyond]
        return max(late, default=0.0)

    def _watch(self) -> None:
        while True:
            self._slept_at = before = time.monotonic()
            time.sleep(STEP_SECONDS)
            now = time.monotonic()
            if now - before > MAX_SECONDS_ALONE:
                self._found.append((now, now - before))
