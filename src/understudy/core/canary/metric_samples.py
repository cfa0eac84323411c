"""What a Prometheus API said of a metric: one value a minute of each version, and why there are none."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from enum import IntEnum
from math import isfinite
from typing import Any, NamedTuple, Self

SAMPLE_SECONDS = 60
PAST_SECONDS = 86_400
"""Of the champion before the rollout: what the metric does by itself."""
SEGMENT_SECONDS = 86_400
"""Evidence begins anew after a day, so that no more than this is read, stored and judged."""
SETTLE_SECONDS = 30
"""A minute is asked for this long after its end, when the scrapes of it are in."""


class ReadProblem(IntEnum):
    """Why the newest question gave no value of both versions. The numbers are stored."""

    NONE = 0
    UNKNOWN_SOURCE = 1
    DOWN = 2
    SLOW = 3
    REDIRECTS = 4
    DENIED = 5
    WRONG_QUERY = 6
    FAILED = 7
    HUGE = 8
    UNREADABLE = 9
    SEVERAL_SERIES = 10
    NO_SERIES_OF_CHAMPION = 20
    NO_SERIES_OF_CHALLENGER = 21
    NO_SERIES = 22
    NO_NUMBER_OF_CHAMPION = 23
    NO_NUMBER_OF_CHALLENGER = 24
    NO_NUMBER = 25

    @property
    def is_unreadable(self) -> bool:
        """Whether there was no answer that can be used at all; otherwise values may come yet."""
        return 0 < self < self.NO_SERIES_OF_CHAMPION


class MetricPoint(NamedTuple):
    """A value of one version, at the end of a minute; or, with ``is_problem``, a :class:`ReadProblem`."""

    number: int
    """The metric's place in the plan."""
    at: int
    value: float
    is_challenger: bool = False
    is_problem: bool = False


class MetricSamples(NamedTuple):
    """One metric of a rollout: minutes in which both versions have a value, oldest first, and the champion's past."""

    times: tuple[int, ...] = ()
    champion: tuple[float, ...] = ()
    challenger: tuple[float, ...] = ()
    past: tuple[float, ...] = ()
    """The champion's values before the rollout, one a minute, without those that are missing."""
    problem: ReadProblem = ReadProblem.NONE
    asked_at: int = 0
    """When it was asked for the last time; 0: never."""

    def until(self, moment: float) -> "MetricSamples":
        """Return what was known of it at a moment."""
        end = bisect_right(self.times, moment)
        cut = self._replace(times=self.times[:end], champion=self.champion[:end], challenger=self.challenger[:end])
        return cut if self.asked_at <= moment else cut._replace(problem=ReadProblem.NONE, asked_at=int(moment))

    def to_json(self) -> dict[str, Any]:
        """Return it as it is stored with a verdict."""
        return self._asdict()

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return what was stored.

        Raises:
            TypeError, ValueError: It is not what was written.
        """
        columns = {name: tuple(document[name]) for name in ("times", "champion", "challenger", "past")}
        found = cls(**columns, problem=ReadProblem(document["problem"]), asked_at=int(document["asked_at"]))
        if len({len(found.times), len(found.champion), len(found.challenger)}) != 1:
            raise ValueError("metrics: the columns have different lengths")
        return found


def segment_of(started_at: float, now: float) -> int:
    """Return how many times evidence has begun anew since a rollout's first step."""
    return max(0, int((now - started_at) // SEGMENT_SECONDS))


def segment_start(started_at: float, now: float) -> float:
    """Return since when a metric counts."""
    return started_at + segment_of(started_at, now) * SEGMENT_SECONDS


def problem_of(point: MetricPoint) -> ReadProblem:
    """Return what a question came to; one that this release has no word for could not be read."""
    try:
        return ReadProblem(int(point.value))
    except (ValueError, OverflowError):
        return ReadProblem.UNREADABLE


def samples_of(points: Iterable[MetricPoint], number: int, since: float, until: float) -> MetricSamples:
    """Return a metric's minutes from ``since`` on, of points in whatever order.

    The first minute that counts began at ``since`` or later; the champion's values before are its past.
    """
    own = [point for point in points if point.number == number and point.at <= until and isfinite(point.value)]
    sides: tuple[dict[int, float], dict[int, float]] = ({}, {})
    asked_at, problem = 0, ReadProblem.NONE
    for point in own:
        if not point.is_problem:
            sides[point.is_challenger][point.at] = point.value
        elif point.at > asked_at:
            asked_at, problem = point.at, problem_of(point)
    champion, challenger = sides
    first = since + SAMPLE_SECONDS
    times = tuple(sorted(at for at in champion.keys() & challenger.keys() if at >= first))
    return MetricSamples(
        times,
        tuple(champion[at] for at in times),
        tuple(challenger[at] for at in times),
        tuple(champion[at] for at in sorted(champion) if since - PAST_SECONDS <= at <= since),
        problem,
        asked_at,
    )
