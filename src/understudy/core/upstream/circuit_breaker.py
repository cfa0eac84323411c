"""Circuit breaker for a dependency that calls can do without, so that a dead one costs them next to nothing."""

from typing import NamedTuple

FAILURES_TO_OPEN = 5
OPEN_SECONDS = 1.0


class CircuitBreaker(NamedTuple):
    """A circuit breaker as a value; every time is of the caller's monotonic clock, in seconds.

    After ``FAILURES_TO_OPEN`` failures in a row it is open: for ``OPEN_SECONDS`` the dependency gets no calls. Then it
    is half-open: one call goes through, and the others stay away until that one has its answer, or for as long again.
    """

    failures: int = 0
    """Failures since the last success."""
    open_until: float = float("-inf")

    def is_open(self, now: float) -> bool:
        """Whether the dependency gets no call now."""
        return now < self.open_until

    def after_asking(self, now: float) -> "CircuitBreaker":
        """Return the breaker after a call went through: half-open, it lets one through at a time."""
        return self._replace(open_until=now + OPEN_SECONDS) if self.failures >= FAILURES_TO_OPEN else self

    def after_failure(self, now: float) -> "CircuitBreaker":
        """Return the breaker after a call that failed or is late."""
        return self._replace(failures=self.failures + 1).after_asking(now)

    def after_late_answer(self, now: float) -> "CircuitBreaker":
        """Return the breaker after an answer that had counted as a failure: half-open at once, as it answers."""
        return self._replace(open_until=min(self.open_until, now))

    def after_success(self) -> "CircuitBreaker":
        """Return the breaker after an answer in time."""
        return CLOSED


CLOSED = CircuitBreaker()
