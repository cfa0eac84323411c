"""When a call is made again: what the server asks for decides, then the time that is left."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import NamedTuple

from understudy.client.problems import ProxyAway, late_before
from understudy.errors import RequestTimedOut, UnderstudyError

_NO_TIME = "timeout_seconds={!r:.40}: expected seconds above 0, such as 2.5"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is made, and how long it waits in between.

    Every call of the client may be made again: predictions change nothing, and outcomes count once.
    """

    attempts: int = 3
    """At most, the first one included."""
    first_wait_seconds: float = 0.1
    """Where the server asks for no wait, doubled for each attempt after that."""
    max_wait_seconds: float = 30.0
    """A call is not made again when the server asks for more."""

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_wait_seconds < 0 or self.max_wait_seconds < 0:
            raise ValueError("expected at least one attempt, and waits of 0 s or more")

    @classmethod
    def of(cls, given: object) -> "Retries":
        """Return the retries that a client was given, by default the usual ones.

        Raises:
            TypeError: They are something else.
        """
        if given is None:
            return cls()
        if not isinstance(given, cls):
            raise TypeError(f"retries={given!r:.40}: expected Retries(attempts=3), or NO_RETRIES")
        return given


def seconds_of(given: object) -> float:
    """Return a client's time-out in seconds.

    Raises:
        TypeError, ValueError: It is no number, or no time within which an answer can come.
    """
    seconds = _finite(given)
    if seconds <= 0:
        raise ValueError(_NO_TIME.format(given))
    return seconds


def seconds_of_call(given: object, usual: float) -> float:
    """Return a call's time-out in seconds; ``None`` is the usual one.

    Raises:
        DeadlineExceeded: It is 0 or less, as what is left of a caller's own time is when that is over.
        TypeError, ValueError: It is no number, or not finite.
    """
    seconds = usual if given is None else _finite(given)
    if seconds <= 0:
        raise late_before(seconds)
    return seconds


def _finite(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"timeout_seconds={given!r:.40}: expected a number of seconds, such as 2.5")
    seconds = float(given)
    if not isfinite(seconds):
        raise ValueError(_NO_TIME.format(given))
    return seconds


NO_RETRIES = Retries(attempts=1)
_MOMENT_SECONDS = 0.001
_SPREAD = 0.25
"""A wait is up to so much longer, by chance: callers that were refused together do not come back together."""


class Attempts:
    """The attempts of one call, until it has an answer or its time is over.

    Args:
        retries: How often.
        seconds: The time for all of them.
        now: When the first one begins, by a clock that only goes on.
        draw: Gives a number from 0 to 1.
    """

    def __init__(self, retries: Retries, seconds: float, now: float, draw: Callable[[], float]) -> None:
        self._retries = retries
        self._began, self._ends_at = now, now + seconds
        self._draw = draw
        self._made = 1

    def remaining(self, now: float) -> float:
        """Return the seconds that are left, or a moment: what is over ends by itself."""
        return max(self._ends_at - now, _MOMENT_SECONDS)

    def wait_after(self, problem: UnderstudyError | ProxyAway, now: float) -> float:
        """Return how many seconds to wait before the next attempt.

        Raises:
            UnderstudyError: The problem itself: another attempt would not do, or there is no time for one.
            ProxyAway: The same.
        """
        advice = advice_of(problem)
        if isinstance(problem, ProxyAway):
            problem.tried = f"{self._made} attempt{'s' * (self._made > 1)} in {now - self._began:.3g} s"
        if not advice.may_help or self._made >= self._retries.attempts:
            raise problem
        own = self._retries.first_wait_seconds * 2 ** (self._made - 1)
        seconds = own if advice.seconds is None else advice.seconds
        if seconds > self._retries.max_wait_seconds:
            raise problem
        seconds *= 1 + _SPREAD * self._draw()
        if seconds >= self.remaining(now):
            raise problem
        self._made += 1
        return seconds


class Advice(NamedTuple):
    """What a problem says about another attempt."""

    may_help: bool
    seconds: float | None = None
    """How long to wait first; ``None``: not said."""


def advice_of(problem: UnderstudyError | ProxyAway) -> Advice:
    """Return what a problem says about another attempt.

    The proxy sends ``Retry-After`` with each problem that passes (E503 and E505 to E510 but what asks for an operator,
    E429), and with no other: a deadline that passed, or an answer that a model server refused, is the same again.
    """
    seconds = problem.retry_after_seconds
    if isinstance(problem, ProxyAway):
        return Advice(problem.is_passing, seconds)
    return Advice(seconds is not None or isinstance(problem, RequestTimedOut), seconds)
