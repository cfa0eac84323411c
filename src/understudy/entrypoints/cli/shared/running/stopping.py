"""Signals that end a command."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Have SIGINT and SIGTERM end a command alike, at once, so that it takes its files and connections with it.

    By itself asyncio answers SIGINT by cancelling, and what a cancelled call fails with would hide the interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set one, and a command that runs in another is not the process
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
