"""On how many servers of its group a version is to be: as a person says it, and as its calls need it."""

import re
from collections.abc import Sequence
from math import ceil
from typing import Final, NamedTuple

MAX_REPLICAS: Final = 64
BUSY_RATIO: Final = 0.6
"""Share of a server's calls at once that is planned with: beyond it waiting times grow steeply."""
TOLERANCE_RATIO: Final = 0.05
"""So much more than a number of servers bears, or less than one fewer does, changes nothing."""
RISE_SECONDS: Final = 30
"""The calls of this time say whether more are needed: two windows, so that one that begins late is not the whole."""
SPAN_SECONDS: Final = 60
"""Calls are added up over this time to say what they need."""
FALL_SECONDS: Final = 900
"""For so long fewer have to be enough before one goes, and so long after one has gone the next may."""
_WORDS: Final = re.compile(r"([0-9]{1,3})(?:\.\.([0-9]{1,3}))?", re.ASCII)


class Replicas(NamedTuple):
    """How many servers of its group have a version, at the least and at the most."""

    least: int
    most: int

    @property
    def is_range(self) -> bool:
        """Whether calls decide between the two."""
        return self.least != self.most

    def __str__(self) -> str:
        """Return it as a person says it."""
        if self == EVERY_SERVER:
            return "all"
        return f"{self.least}..{self.most}" if self.is_range else str(self.least)


EVERY_SERVER: Final = Replicas(0, 0)
"""What takes a number back: every server of the group, those that come later as well."""


def parse_replicas(text: str) -> Replicas:
    """Return what ``2``, ``1..4`` or ``all`` says.

    Raises:
        ValueError: It says nothing of the kind; the message says what it may.
    """
    if text == "all":
        return EVERY_SERVER
    found = _WORDS.fullmatch(text)
    if found is not None:
        least = int(found[1])
        made = Replicas(least, least if found[2] is None else int(found[2]))
        if 1 <= made.least <= made.most <= MAX_REPLICAS:
            return made
    raise ValueError(f"{text[:40]!r} is no number of servers: say 2, 1..4, or all; from 1 to {MAX_REPLICAS}")


class SpanLoad(NamedTuple):
    """The calls of a version in one span of time."""

    calls_per_second: float
    p95_seconds: float

    def servers(self, concurrency: int) -> float:
        """Return how many servers these calls keep busy, which is no whole number.

        Source:
            Little's law: calls under way = calls per second by the seconds that each takes.
        """
        return self.calls_per_second * self.p95_seconds / (concurrency * BUSY_RATIO)


class LoadSeen(NamedTuple):
    """What is known of a version's calls; all of it is in rows, so that the next leader finds the same."""

    lately: SpanLoad
    """In the last ``RISE_SECONDS``."""
    spans: Sequence[SpanLoad]
    """In each ``SPAN_SECONDS`` of the last ``FALL_SECONDS``, those without calls too."""


def replicas_needed(replicas: Replicas, before: int, load: LoadSeen | None, *, concurrency: int, may_fall: bool) -> int:
    """Return on how many servers a version is to be: more at once, and one fewer after a quarter of an hour.

    Args:
        replicas: The fewest and the most.
        before: On how many it was to be so far.
        load: Its calls; ``None``: not known yet, and nothing changes for them.
        concurrency: Calls that one server answers at once.
        may_fall: Whether one may go: not while a rollout that has the version is open, nor ``FALL_SECONDS`` after
            another one has gone.
    """
    now = min(max(before, replicas.least), replicas.most)
    if load is None:
        return now
    lately = load.lately.servers(concurrency)
    if lately > now * (1 + TOLERANCE_RATIO):
        return min(ceil(lately), replicas.most)
    most = max((span.servers(concurrency) for span in load.spans), default=0.0)
    falls = may_fall and now > replicas.least and max(most, lately) <= (now - 1) * (1 - TOLERANCE_RATIO)
    return now - 1 if falls else now
