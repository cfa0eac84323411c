"""Heap of a process that is short of memory: what is free of it goes back to the system."""

import ctypes
import gc
from collections.abc import Callable
from threading import Thread

SHRINK_SECONDS = 10.0
"""Time between two attempts while the pressure lasts. Source: Envoy's overload action ``shrink_heap``."""


class HeapShrinker:
    """Gives free memory back to the system while memory pressure lasts.

    Without it the pressure might never end. What is freed stays with the process: reference cycles until the garbage
    collector finds them, which runs seldom (``tune_runtime``), and with glibc each free block below one in use.

    Args:
        now: A clock, in seconds.
        trim: Gives free blocks back, in a thread of its own; by default what :func:`malloc_trim` returns.
    """

    def __init__(self, now: Callable[[], float], trim: Callable[[], object] | None = None) -> None:
        self._now = now
        self._trim = trim or malloc_trim()
        self._thread: Thread | None = None
        self._due_at = float("-inf")

    def shrink(self) -> None:
        """Begin now, unless an earlier attempt goes on or was begun less than :data:`SHRINK_SECONDS` ago.

        The collection holds the event loop: 40 ms with 400,000 objects. The rest runs beside it, as the system may take
        long for many pages, and as it needs no interpreter lock (GIL).
        """
        if self._now() < self._due_at or (self._thread is not None and self._thread.is_alive()):
            return
        self._due_at = self._now() + SHRINK_SECONDS
        gc.collect()
        self._thread = Thread(target=self._trim, name="heap-shrinker", daemon=True)
        self._thread.start()


def malloc_trim() -> Callable[[], object]:
    """Return what gives free blocks of all sizes back to the system: glibc's; of another C library nothing is asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: trim(ctypes.c_size_t(0))) if trim is not None else lambda: None
