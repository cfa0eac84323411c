"""Load balancing over replicas (power of two choices), outlier ejection, and the retry budget.

A replica is *ejected* after failures in a row, after calls in a row that a hedge overtook, or after refusals in a row
while the others answer, and is *due* for a probe when its ejection is over. A good probe makes it *half-open*: it
gets one call at a time, and one more failure or refusal ejects it again, for longer; one answer forgets everything.

A replica that is late call after call and may not be ejected, as too few others would be left, is *suspect*: a good
probe makes it half-open.
"""

from collections.abc import Sequence
from enum import Enum
from operator import attrgetter
from typing import NamedTuple, TypeVar

FAILURES_TO_EJECT = 3
OVERTAKEN_TO_EJECT = 5
"""Calls in a row that another replica answered first, after this one had its 95th percentile of time. A replica that
hangs is found by them before a caller's deadline is; one that is well is overtaken in at most every twentieth call."""
REFUSALS_TO_EJECT = 5
ANSWERS_TO_BLAME = 3
"""Answers in a row that the other replicas must have given since the first refusal. That tells a replica that refuses
everything from callers who send what every replica refuses: where each call is refused with the same chance p,
whichever replica it goes to, one call in 200 ejects at the worst p, as p⁵ (1 - p)³ ≤ 0.005."""
LATE_TO_SUSPECT = 10
"""Calls in a row that ran into their deadlines. A replica that is not ejected, because too few others are left, must
then pass a probe before it gets another call: a caller goes to another replica, or is refused at once, instead of
waiting for a frozen one until its deadline."""
LATE_BUDGET_RATIO = 0.05
"""A call that ran out counts against its replica if it had this share of the version's own time limit. Otherwise three
calls in a row with shorter deadlines than a healthy replica meets would eject it for all callers. The share is small
because a hanging challenger must be found by calls that get a share of the champion's limit, which may be much shorter
than its own."""
FIRST_EJECTION_SECONDS = 1.0
MAX_EJECTION_SECONDS = 8.0
RETRY_RATIO = 0.2
"""Retries earned by one answer."""
RETRY_BURST = 100.0
"""Retries that may be saved up: all calls in flight to a replica fail together when it dies."""


class CallResult(Enum):
    """What a call says about the replica it went to."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """The replica is alive and refused the call; another one would most likely do the same."""
    UNABLE = "unable"
    """The replica is alive and cannot take this version's calls: it lost the model, or is full. Another one may."""
    UNAVAILABLE = "unavailable"
    LATE = "late"
    OVERTAKEN = "overtaken"
    """A hedge was answered first, and this call was cancelled."""

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the replica whatever the others do."""
        return self in (CallResult.UNABLE, CallResult.UNAVAILABLE, CallResult.LATE)


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
    """When a probe is due, in seconds of the monotonic clock; ``None`` while the replica gets calls."""

    @property
    def ejected(self) -> bool:
        """Whether the replica gets no calls."""
        return self.ejected_until is not None

    @property
    def is_half_open(self) -> bool:
        """Whether the replica is back from an ejection and has not answered since."""
        return self.ejections > 0 and self.ejected_until is None

    @property
    def is_suspect(self) -> bool:
        """Whether it must pass a probe before it gets another call."""
        return self.late >= LATE_TO_SUSPECT

    def probe_due(self, now: float) -> bool:
        """Whether the replica's ejection is over, so that it is to be probed."""
        return self.ejected_until is not None and now >= self.ejected_until


HEALTHY = Health()


class ReplicaState:
    """What load balancing goes by at one replica."""

    __slots__ = ("health", "in_flight")

    def __init__(self, health: Health = HEALTHY, in_flight: int = 0) -> None:
        self.health = health
        self.in_flight = in_flight
        """Calls at the replica now."""


AnyReplica = TypeVar("AnyReplica", bound=ReplicaState)


def choose_replica(replicas: Sequence[AnyReplica], draw: float, avoid: AnyReplica | None = None) -> AnyReplica | None:
    """Return the less busy of two random replicas that get calls, or ``None`` when there is none.

    One that is half-open and has a call already leaves this one to the other: idle as it is it would be the less busy
    one for each call that comes before its first one has failed.

    Args:
        replicas: All of the version.
        draw: A random number, 0 inclusive to 1 exclusive; each pair of replicas is equally likely.
        avoid: A replica that just failed the same call.
    """
    open_ones = [replica for replica in replicas if replica.health.ejected_until is None and replica is not avoid]
    if len(open_ones) <= 1:
        return open_ones[0] if open_ones else None
    first, second = _pair(len(open_ones), draw)
    one, other = open_ones[first], open_ones[second]
    less_busy, busier = (one, other) if one.in_flight <= other.in_flight else (other, one)
    return busier if less_busy.in_flight and less_busy.health.is_half_open else less_busy


def choose_unsuspected(replicas: Sequence[AnyReplica], avoid: AnyReplica | None = None) -> AnyReplica | None:
    """Return the least busy replica that is neither ejected nor suspect, or ``None`` when there is none."""
    sure = [
        replica
        for replica in replicas
        if replica is not avoid and not (replica.health.ejected or replica.health.is_suspect)
    ]
    return min(sure, key=attrgetter("in_flight"), default=None)


def choose_hedge(replicas: Sequence[AnyReplica], first: AnyReplica) -> AnyReplica | None:
    """Return the least busy replica that a hedge may go to, or ``None``.

    One that is ejected, half-open, or failed its last call gets no hedge: a hedge is sent to be sure of an answer.
    """
    others = [
        replica
        for replica in replicas
        if replica is not first and not (replica.health.ejected or replica.health.failures)
    ]
    return min(others, key=attrgetter("in_flight"), default=None)


def had_time(given_seconds: float, usual_seconds: float, p95_seconds: float | None) -> bool:
    """Return whether a call that ran out had enough time for that to count against its replica.

    Args:
        given_seconds: What the call had at the replica.
        usual_seconds: The version's own time limit.
        p95_seconds: The 95th percentile of the replica's last calls; ``None`` where it is not known.
    """
    return given_seconds >= (LATE_BUDGET_RATIO * usual_seconds if p95_seconds is None else p95_seconds)


def _pair(count: int, draw: float) -> tuple[int, int]:
    """Return two different indices below ``count``, in random order."""
    first, second = divmod(int(draw * count * (count - 1)), count - 1)
    return first, second + (second >= first)


def healths_after(healths: Sequence[Health], index: int, result: CallResult, now: float) -> list[Health]:
    """Return what is known about all replicas after a call to the replica ``index``.

    That replica is ejected only while at most half of all replicas then are, so the only one never is. Calls that were
    sent before an ejection do not make it longer.
    """
    changed = [_after_another(health, result) for health in healths]
    changed[index] = _after_own(healths[index], result)
    ejected = 1 + sum(other.ejected for other in healths)
    if _is_due(changed[index], result) and ejected * 2 <= len(healths):
        changed[index] = _ejected(changed[index], now)
    return changed


def health_of_newcomer(now: float) -> Health:
    """Return what is known about a replica that has just been discovered: it gets no call before a probe is good."""
    return Health(ejected_until=now)


def healths_with_choice(healths: Sequence[Health], now: float) -> list[Health]:
    """Return what is known about the replicas that a change of the set has left, of which one at least gets calls.

    Where all are ejected they are half-open, and calls find out which of them serve.
    """
    if not all(health.ejected for health in healths):
        return list(healths)
    return [health_after_probe(health, ready=True, now=now) for health in healths]


def health_after_probe(health: Health, ready: bool, now: float) -> Health:  # noqa: FBT001  # a probe has two results
    """Return what is known about an ejected or suspect replica after a probe: a good one makes it half-open.

    A replica that has answered a call meanwhile stays as it is.
    """
    if health.ejected:
        if not ready:
            return _ejected(health, now)
        return health._replace(failures=FAILURES_TO_EJECT - 1, late=0, ejected_until=None)
    if ready and health.is_suspect:
        return health._replace(failures=FAILURES_TO_EJECT - 1, late=LATE_TO_SUSPECT - 1)
    return health


def _after_own(health: Health, result: CallResult) -> Health:
    if result is CallResult.ANSWERED:
        return HEALTHY
    if health.ejected:
        return health
    if result is CallResult.REFUSED:
        return health._replace(failures=0, overtaken=0, late=0, refusals=health.refusals + 1)
    if result is CallResult.OVERTAKEN:
        return health._replace(overtaken=health.overtaken + 1)
    late = health.late + 1 if result is CallResult.LATE else 0
    return health._replace(failures=health.failures + 1, late=late)


def _after_another(health: Health, result: CallResult) -> Health:
    """Count the answers of other replicas: they tell a replica that refuses everything from calls that all refuse."""
    if not health.refusals or result.is_failure or result is CallResult.OVERTAKEN:
        return health
    answers = health.answers_elsewhere + 1 if result is CallResult.ANSWERED else 0
    return health._replace(answers_elsewhere=answers)


def _is_due(health: Health, result: CallResult) -> bool:
    """Whether a replica with this record is to be ejected, if enough others are left."""
    if health.ejected:
        return False
    if result is CallResult.REFUSED:
        return health.refusals >= REFUSALS_TO_EJECT and health.answers_elsewhere >= ANSWERS_TO_BLAME
    if result is CallResult.OVERTAKEN:
        return health.overtaken >= OVERTAKEN_TO_EJECT
    return result.is_failure and health.failures >= FAILURES_TO_EJECT


def _ejected(health: Health, now: float) -> Health:
    seconds = min(FIRST_EJECTION_SECONDS * 2.0 ** min(health.ejections, 32), MAX_EJECTION_SECONDS)
    return health._replace(ejections=health.ejections + 1, ejected_until=now + seconds)


class RetryBudget(NamedTuple):
    """Retries that may still be made: a share of the answers, saved up to a burst.

    Calls that fail earn none: while no replica answers a retry fails as well, and a budget that every call earned would
    add a fifth to the load of model servers that are down already (a retry storm).

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
