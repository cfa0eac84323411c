"""Retries of one fetch: pauses that double, begun anew with each progress, and none once its result is not wanted."""

from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from understudy.adapters.artifacts.bounded_thread import GivenUp
from understudy.errors import ArtifactUnreachable

MAX_ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 60.0
"""A store that asks for a longer one is not waited for: the agent begins again by itself later."""
T = TypeVar("T")


class Passing(Exception):
    """A failure that may be over soon.

    Args:
        words: What failed.
        after_seconds: How long the store wants to be left alone; ``None``: it has not said.
    """

    def __init__(self, words: str, after_seconds: float | None = None) -> None:
        super().__init__(words)
        self.after_seconds = after_seconds


class Patience:
    """Waits between attempts.

    Args:
        given_up: Set once the result is wanted no more; it ends a pause.
        first_pause_seconds: After the first failure.
        attempts: With the first one.
    """

    def __init__(
        self, given_up: Event, first_pause_seconds: float = FIRST_PAUSE_SECONDS, attempts: int = MAX_ATTEMPTS
    ) -> None:
        self._given_up = given_up
        self._first = first_pause_seconds
        self._attempts = attempts
        self._failures = 0

    def wait(self, problem: Passing, uri: str) -> None:
        """Wait before the next attempt.

        Raises:
            ArtifactUnreachable: There were enough, or the store wants a longer pause than is made.
            GivenUp: The result is wanted no more.
        """
        self._failures += 1
        pause = max(self._first * 2 ** (self._failures - 1), problem.after_seconds or 0.0)
        if self._failures >= self._attempts or pause > MAX_PAUSE_SECONDS:
            raise ArtifactUnreachable(f"{uri} cannot be read: {problem}")
        if self._given_up.wait(pause):
            raise GivenUp

    def retry(self, work: Callable[[], T], uri: str) -> T:
        """Return what ``work`` returns, asked again after each passing failure; raises as :meth:`wait`."""
        while True:
            try:
                return work()
            except Passing as problem:
                self.wait(problem, uri)

    def renew(self) -> None:
        """Count failures from 0 again: something has come in."""
        self._failures = 0
