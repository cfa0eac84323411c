"""Signals that end a command."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end a command as Ctrl-C does, so that it takes its files and connections with it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set one, and a command that runs in another is not the process
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
