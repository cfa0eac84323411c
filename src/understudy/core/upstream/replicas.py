"""Which replica gets a call, which one is left out for a while, and whether a failed call may be repeated.

A replica is *ejected* after failures in a row, after calls in a row that a hedge overtook, or after refusals in a row
while the others answer, and is *due* for a probe when its time is over. A probe that succeeds puts it back *on
probation*: one more failure or refusal ejects it again, for longer; one answer forgets everything.

A replica that is late call after call and may not be ejected, as too few others would be left, is *in doubt*: it gets
calls again when it says that it serves.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

FAILURES_TO_EJECT = 3
OVERTAKEN_TO_EJECT = 5
"""Calls in a row that another replica answered first, after this one had its 95th percentile of time. A replica that
hangs is found by them before a caller's deadline is; one that is well is overtaken in at most every twentieth call."""
REFUSALS_TO_EJECT = 5
ANSWERS_TO_BLAME = 3
"""Answers in a row that the other replicas must have given since the first refusal. One replica that refuses everything
is told from callers who send what every replica refuses: where each call is refused with the same chance p, whichever
replica it goes to, one call in 200 ejects at the worst p, as p⁵ (1 - p)³ ≤ 0.005."""
LATE_TO_DOUBT = 10
"""Calls in a row that ran into their deadlines. A replica that is not ejected, because too few others are left, must
then say that it serves before it gets another call: a caller who would wait for a frozen one in vain goes to another
one, or is told at once."""
LATE_BUDGET_RATIO = 0.05
"""A call that ran out counts against its replica if it had this share of the version's own time limit. Of callers who
give a healthy replica less than it needs, three in a row would eject it for everybody. It is so small because a hanging
challenger must be found by calls that get a share of the champion's limit, which may be much shorter than its own."""
FIRST_EJECTION_SECONDS = 1.0
MAX_EJECTION_SECONDS = 8.0
RETRY_RATIO = 0.2
"""Retries earned by one answer."""
RETRY_BURST = 100.0
"""Retries that may be saved up: all calls in flight to a replica fail together when it dies."""


class Outcome(Enum):
    """What a call says about the replica it went to."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The replica is alive and did not like the call; another one would most likely say the same."""
    UNABLE = "unable"
    """The replica is alive and cannot take this version's calls: it lost the model, or is full. Another one may."""
    UNAVAILABLE = "unavailable"
    LATE = "late"
    OVERTAKEN = "overtaken"
    """A hedge was answered first, and this call was broken off."""

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the replica whatever the others do."""
        return self in (Outcome.UNABLE, Outcome.UNAVAILABLE, Outcome.LATE)


class Health(NamedTuple):
    """What is known about one replica."""

    failures: int = 0
    """Failed calls since it last answered or refused."""
    refusals: int = 0
    """Refused calls since the last answer."""
    answers_elsewhere: int = 0
    """Answers that the other replicas gave in a row while this one refuses."""
    overtaken: int = 0
    """Calls since it last answered or refused that a hedge overtook."""
    late: int = 0
    """Calls in a row that ran into their deadlines."""
    ejections: int = 0
    """Ejections and failed probes since the last answer; the next ejection is twice as long."""
    ejected_until: float | None = None
    """When a probe is due, in the seconds of the caller's clock; ``None`` while the replica gets calls."""

    @property
    def ejected(self) -> bool:
        """Whether the replica gets no calls."""
        return self.ejected_until is not None

    @property
    def is_doubted(self) -> bool:
        """Whether it should say that it serves before it is given another call."""
        return self.late >= LATE_TO_DOUBT

    def probe_due(self, now: float) -> bool:
        """Whether the replica should be asked if it is back."""
        return self.ejected_until is not None and now >= self.ejected_until


HEALTHY = Health()


def choose_replica(
    healths: Sequence[Health], in_flight: Sequence[int], draw: float, avoid: int | None = None
) -> int | None:
    """Return the index of the less busy of two random replicas that get calls, or ``None`` when there is none.

    Args:
        healths: One per replica.
        in_flight: Calls at each replica now.
        draw: A random number, 0 inclusive to 1 exclusive; each pair of replicas is equally likely.
        avoid: A replica that just failed the same call.
    """
    indices = [index for index, health in enumerate(healths) if health.ejected_until is None and index != avoid]
    if len(indices) <= 1:
        return indices[0] if indices else None
    first, second = _pair(len(indices), draw)
    one, other = indices[first], indices[second]
    return one if in_flight[one] <= in_flight[other] else other


def choose_undoubted(healths: Sequence[Health], in_flight: Sequence[int], avoid: int | None = None) -> int | None:
    """Return the index of the least busy replica that gets calls and is not in doubt, or ``None`` when there is none.

    Args:
        healths: One per replica.
        in_flight: Calls at each replica now.
        avoid: A replica that just failed the same call.
    """
    sure = [
        index for index, health in enumerate(healths) if index != avoid and not (health.ejected or health.is_doubted)
    ]
    return min(sure, key=in_flight.__getitem__, default=None)


def had_time(given_seconds: float, usual_seconds: float, patience_seconds: float | None) -> bool:
    """Return whether a call that ran out had so much time that this says something about its replica.

    Args:
        given_seconds: What the call had at the replica.
        usual_seconds: The version's own time limit.
        patience_seconds: The 95th percentile of the replica's last calls; ``None`` where it is not known.
    """
    return given_seconds >= (LATE_BUDGET_RATIO * usual_seconds if patience_seconds is None else patience_seconds)


def _pair(count: int, draw: float) -> tuple[int, int]:
    """Return two different indices below ``count``, in random order."""
    first, second = divmod(int(draw * count * (count - 1)), count - 1)
    return first, second + (second >= first)


def healths_after(healths: Sequence[Health], index: int, outcome: Outcome, now: float) -> list[Health]:
    """Return what is known about all replicas after a call to the replica ``index``.

    It is ejected only while at most half of all replicas then are, so the only one never is. An ejection that runs is
    not made longer by calls that left before it.
    """
    changed = [_after_another(health, outcome) for health in healths]
    changed[index] = _after_own(healths[index], outcome)
    ejected = 1 + sum(other.ejected for other in healths)
    if _is_due(changed[index], outcome) and ejected * 2 <= len(healths):
        changed[index] = _ejected(changed[index], now)
    return changed


def health_after_probe(health: Health, ready: bool, now: float) -> Health:  # noqa: FBT001  # a probe has two results
    """Return what is known about an ejected replica after a probe, or about one in doubt after it said that it serves.

    One that has answered meanwhile stays as it is.
    """
    if health.ejected:
        if not ready:
            return _ejected(health, now)
        return health._replace(failures=FAILURES_TO_EJECT - 1, late=0, ejected_until=None)
    if ready and health.is_doubted:
        return health._replace(failures=FAILURES_TO_EJECT - 1, late=LATE_TO_DOUBT - 1)
    return health


def _after_own(health: Health, outcome: Outcome) -> Health:
    if outcome is Outcome.ANSWERED:
        return HEALTHY
    if health.ejected:
        return health
    if outcome is Outcome.REFUSED:
        return health._replace(failures=0, overtaken=0, late=0, refusals=health.refusals + 1)
    if outcome is Outcome.OVERTAKEN:
        return health._replace(overtaken=health.overtaken + 1)
    late = health.late + 1 if outcome is Outcome.LATE else 0
    return health._replace(failures=health.failures + 1, late=late)


def _after_another(health: Health, outcome: Outcome) -> Health:
    """Count the answers of the others, which tell a replica that refuses everything from a call that all refuse."""
    if not health.refusals or outcome.is_failure or outcome is Outcome.OVERTAKEN:
        return health
    answers = health.answers_elsewhere + 1 if outcome is Outcome.ANSWERED else 0
    return health._replace(answers_elsewhere=answers)


def _is_due(health: Health, outcome: Outcome) -> bool:
    """Whether a replica with this record is to be ejected, if enough others are left."""
    if health.ejected:
        return False
    if outcome is Outcome.REFUSED:
        return health.refusals >= REFUSALS_TO_EJECT and health.answers_elsewhere >= ANSWERS_TO_BLAME
    if outcome is Outcome.OVERTAKEN:
        return health.overtaken >= OVERTAKEN_TO_EJECT
    return outcome.is_failure and health.failures >= FAILURES_TO_EJECT


def _ejected(health: Health, now: float) -> Health:
    seconds = min(FIRST_EJECTION_SECONDS * 2.0 ** min(health.ejections, 32), MAX_EJECTION_SECONDS)
    return health._replace(ejections=health.ejections + 1, ejected_until=now + seconds)


class RetryBudget(NamedTuple):
    """Retries that may still be made: a share of the answers, saved up to a burst.

    Calls that fail earn none: while no replica answers, a retry finds what the call found, and the budget that calls
    earn would add a fifth to the load of model servers that are down already.

    Source:
        Retry throttling by answers: gRPC proposal A6.
    """

    tokens: float = RETRY_BURST

    @property
    def allows(self) -> bool:
        """Whether one more retry may be made."""
        return self.tokens >= 1

    def after_answer(self) -> "RetryBudget":
        """Return the budget after a replica answered."""
        return self if self.tokens >= RETRY_BURST else RetryBudget(min(self.tokens + RETRY_RATIO, RETRY_BURST))

    def after_retry(self) -> "RetryBudget":
        """Return the budget after a retry."""
        return RetryBudget(self.tokens - 1)
