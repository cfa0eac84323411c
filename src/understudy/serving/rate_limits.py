"""Who has used how much of what they may: one pair of token buckets for each tenant, or key without a tenant."""

from collections import OrderedDict
from math import ceil, inf

from understudy.core.routing.policy import ApiKey
from understudy.core.routing.rate_limits import (
    ANONYMOUS,
    NO_LIMIT,
    ROW_BYTES,
    Allowance,
    TokenBucket,
    call_bytes,
    most_of,
)
from understudy.errors import QuotaExceeded

MAX_CALLERS = 10_000
"""Callers whose use is remembered; whoever was quiet longest is forgotten first, and then has a full bucket again."""


class RateLimiter:
    """Charges calls to their callers.

    Args:
        usual: What a key has that says nothing of its own.
        workers: Processes of this proxy: each hands out its part of every rate.
        max_callers: Callers that are remembered.
    """

    def __init__(self, usual: Allowance, *, workers: int = 1, max_callers: int = MAX_CALLERS) -> None:
        self._usual = usual
        self._workers = workers
        self._max_callers = max_callers
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def charge(self, key: ApiKey | None, content_length: int | None, now: float) -> None:
        """Let a call pass that its caller has anything left for.

        Args:
            key: The caller's key, which is good; ``None`` for somebody without one.
            content_length: Bytes of the body, when they are known.
            now: The monotonic clock, in seconds.

        Raises:
            QuotaExceeded: Saying when to come again.
        """
        allowance = self._allowance_of(key)
        if allowance is None:
            return
        who = _who(key)
        wait = max(
            self._take(("calls", who), 1.0, allowance.calls_per_second, now),
            self._take(("bytes", who), call_bytes(content_length), allowance.bytes_per_second, now),
        )
        if wait > 0:
            raise _refused(who, wait)

    def charge_members(self, key: ApiKey | None, more: int, now: float) -> None:
        """Charge the members of a batch beside its first one, which :meth:`charge` charged with the body.

        A batch is let through once it is in, and the next calls wait for what it took too much; but of several that
        were let in together those that come after the debt are refused, or each would have the whole burst.

        Args:
            key: As of :meth:`charge`.
            more: Members beside the first one.
            now: The monotonic clock, in seconds.

        Raises:
            QuotaExceeded: Saying when to come again.
        """
        allowance = self._allowance_of(key)
        if allowance is None or not more:
            return
        who = _who(key)
        wait = self._take(("calls", who), more, allowance.calls_per_second, now, needed=0.0)
        if wait > 0:
            raise _refused(who, wait)
        # Owed whatever is left: the debt may be that of this batch's own body.
        self._take(("bytes", who), more * ROW_BYTES, allowance.bytes_per_second, now, needed=-inf)

    def __len__(self) -> int:
        """Return how many buckets there are."""
        return len(self._buckets)

    def _allowance_of(self, key: ApiKey | None) -> Allowance | None:
        """Return this process's part of what a caller may use; ``None``: there is no limit."""
        own = NO_LIMIT if key is None else key.allowance
        if own == NO_LIMIT == self._usual:
            return None
        return own.or_else(self._usual).shared_by(self._workers)

    def _take(
        self, place: tuple[str, str], cost: float, rate: float | None, now: float, *, needed: float | None = None
    ) -> float:
        if rate is None:
            return 0.0
        before = self._buckets.get(place) or TokenBucket(most_of(rate), now)
        self._buckets[place], wait = before.take(cost, rate, now, needed=needed)
        self._buckets.move_to_end(place)
        if len(self._buckets) > 2 * self._max_callers:
            self._buckets.popitem(last=False)
        return wait


def _who(key: ApiKey | None) -> str:
    """Return whose the use is."""
    return ANONYMOUS if key is None else f"tenant {key.tenant}" if key.tenant else f"key {key.id}"


def _refused(who: str, wait: float) -> QuotaExceeded:
    return QuotaExceeded(f"{who} has used up what it may", retry_after_seconds=max(1, ceil(wait)))
