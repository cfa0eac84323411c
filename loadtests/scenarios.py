"""The five scenarios of the load test: when requests are due, and how long one lasts in ``make loadtest``."""

from collections.abc import Sequence
from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a scenario, in which so many times the rate is asked."""

    seconds: float
    times: float


class Scenario(NamedTuple):
    """What callers do; what is done to the product meanwhile is the stage's (``loadtest.py``), or yours."""

    about: str
    seconds: float
    """Its length in ``make loadtest``."""
    phases: Sequence[Phase] = (Phase(1, 1),)
    """Repeated for as long as the load goes on."""


SCENARIOS = {
    "steady": Scenario("the same rate throughout, a fifth of it for a challenger", 24),
    "burst": Scenario("three times the rate for every other five seconds", 20, (Phase(5, 1), Phase(5, 3))),
    "weight-flip": Scenario("the challenger's weight goes from 0 to 100 and back, again and again", 22),
    "dead-challenger": Scenario("the challenger's model server dies after a third of the time", 21),
    "cold-cache": Scenario("the same inputs again and again, and after a third of the time the cache is empty", 21),
}


class Arrivals:
    """When each request is due, by the clock alone: however slow the answers are, the next ones are due on time.

    Args:
        phases: Of the scenario.
        per_second: The rate.
    """

    def __init__(self, phases: Sequence[Phase], per_second: float) -> None:
        self._phases = [(phase.seconds, phase.times * per_second) for phase in phases]
        self._seconds = sum(seconds for seconds, _ in self._phases)
        self._count = sum(seconds * rate for seconds, rate in self._phases)

    def due_seconds(self, number: int) -> float:
        """Return when a request is due, in seconds after the beginning; the first one is number 0."""
        rounds, left = divmod(number, self._count)
        at = rounds * self._seconds
        for seconds, rate in self._phases:
            if left < seconds * rate:
                return at + left / rate
            left -= seconds * rate
            at += seconds
        return at  # by rounding

    def planned(self, seconds: float) -> int:
        """Return how many requests are due before so many seconds are over."""
        low, high = 0, 1
        while self.due_seconds(high) < seconds:
            low, high = high, high * 2
        while low < high:
            middle = (low + high) // 2
            if self.due_seconds(middle) < seconds:
                low = middle + 1
            else:
                high = middle
        return low
