"""Blocking work in a thread of its own, which its caller can leave behind."""

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import Final, TypeVar

NAME: Final = "artifact"
T = TypeVar("T")


class GivenUp(Exception):
    """The result is wanted no more."""


def go_on_unless(given_up: Event) -> None:
    """End a thread's work at its next step once its result is wanted no more."""
    if given_up.is_set():
        raise GivenUp


async def in_bounded_thread(work: Callable[[Event], T], seconds: float) -> T:
    """Return what ``work`` returns.

    The event that it gets is set once its result is wanted no more, at the deadline or because the caller was
    cancelled; it should end soon then. One that cannot, because a file system hangs in a single read, is left behind:
    the end of the process does not wait for it, and no thread of a pool is missing.

    Raises:
        TimeoutError: It took longer than ``seconds``; the message says so.
    """
    given_up = Event()
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # from here on it cannot be cancelled, and always takes what the thread says

    def run() -> None:
        try:
            result = work(given_up)
        except BaseException as problem:  # noqa: BLE001 - the caller gets it
            outcome.set_exception(problem)
        else:
            outcome.set_result(result)

    Thread(target=run, name=NAME, daemon=True).start()
    try:
        async with asyncio.timeout(seconds) as limit:
            return await asyncio.wrap_future(outcome)
    except TimeoutError:
        if limit.expired():  # and no file system's own time-out, which has words
            raise TimeoutError(errno.ETIMEDOUT, f"it takes longer than {seconds:g} s") from None
        raise
    finally:
        given_up.set()
