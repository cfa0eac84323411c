"""When a dependency that nobody needs is left alone, so that a dead one costs next to nothing."""

from typing import NamedTuple

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 1.0


class Breaker(NamedTuple):
    """What is known about a dependency, as a value; every time is of the caller's monotonic clock, in seconds.

    After ``FAILURES_TO_OPEN`` failures in a row the breaker is open: nobody asks for ``OPEN_SECONDS``. Then one caller
    tries, and the others stay away until it has its answer, or for as long again.
    """

    failures: int = 0
    """Failures since the last success."""
    open_until: float = float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether to leave the dependency alone."""
        return now < self.open_until

    def after_asking(self, now: float) -> "Breaker":
        """Return the breaker after somebody was let through: once it has opened, one at a time is."""
        return self._replace(open_until=now + OPEN_SECONDS) if self.failures >= FAILURES_TO_OPEN else self

    def after_failure(self, now: float) -> "Breaker":
        """Return the breaker after a call that failed or is late."""
        return self._replace(failures=self.failures + 1).after_asking(now)

    def after_late_answer(self, now: float) -> "Breaker":
        """Return the breaker after an answer that had counted as a failure: it lives, so the next caller tries."""
        return self._replace(open_until=min(self.open_until, now))

    def after_success(self) -> "Breaker":
        """Return the breaker after an answer in time."""
        return CLOSED


CLOSED = Breaker()
