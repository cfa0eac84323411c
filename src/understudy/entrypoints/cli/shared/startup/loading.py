"""Ctrl-C while a command's modules are loaded, before there is anything to clean up."""

import os
import signal
from types import FrameType

INTERRUPTED = 130
"""``ExitCode.INTERRUPTED``, whose module may not be loaded yet."""


def leave_at_once(_number: int, _frame: FrameType | None) -> None:
    """End the process: an exception would pass through the start of extension modules, of which some crash at it."""
    os._exit(INTERRUPTED)


def begin_loading() -> None:
    """Have Ctrl-C end the process at once, until :func:`end_loading`; in the main thread of a command's own process.

    A process that was started with the signal ignored, as a script's ``&`` does, goes on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave_at_once)


def end_command() -> None:
    """Have Ctrl-C end the process without a word: what is left is the interpreter's own end, which would say where."""
    if signal.getsignal(signal.SIGINT) in (leave_at_once, signal.default_int_handler):
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_loading() -> None:
    """Have Ctrl-C interrupt the command, so that it cleans up; nothing where no loading was begun."""
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
