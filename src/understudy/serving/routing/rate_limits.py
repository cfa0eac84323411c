"""Rate limits of callers: one pair of token buckets for each tenant, or key without a tenant."""

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
"""Callers whose buckets are kept; the one that was quiet longest is forgotten first, and then has a full one again."""


class RateLimiter:
    """Charges calls to their callers.

    Args:
        usual: The allowance of a key that has none of its own.
        workers: Processes of this proxy: each hands out its part of every rate.
        max_callers: Callers whose buckets are kept.
    """

    def __init__(self, usual: Allowance, *, workers: int = 1, max_callers: int = MAX_CALLERS) -> None:
        self._usual = usual
        self._workers = workers
        self._max_callers = max_callers
        self._buckets: OrderedDict[tuple[str, str], TokenBucket] = OrderedDict()

    def charge(self, key: ApiKey | None, content_length: int | None, now: float) -> None:
        """Charge a call to its caller, or refuse it while the caller's bucket is empty.

        Args:
            key: The caller's valid key; ``None`` for a caller without one.
            content_length: Bytes of the body, when they are known.
            now: The monotonic clock, in seconds.

        Raises:
            QuotaExceeded: Its ``retry-after`` says when to call again.
        """
        allowance = self._allowance_of(key)
        if allowance is None:
            return
        caller = _caller_of(key)
        wait = max(
            self._take(("calls", caller), 1.0, allowance.calls_per_second, now),
            self._take(("bytes", caller), call_bytes(content_length), allowance.bytes_per_second, now),
        )
        if wait > 0:
            raise _refused(caller, wait)

    def limits(self, key: ApiKey | None) -> bool:
        """Whether a caller's calls are limited."""
        return self._allowance_of(key) is not None

    def charge_members(self, key: ApiKey | None, more: int, now: float) -> None:
        """Charge the members of a batch beside its first one, which :meth:`charge` charged with the body.

        A batch that was admitted goes through, and the next calls wait until its debt is paid; of several that were
        admitted together those after the debt are refused, or each would have the whole burst.

        Args:
            key: As of :meth:`charge`.
            more: Members beside the first one.
            now: The monotonic clock, in seconds.

        Raises:
            QuotaExceeded: Its ``retry-after`` says when to call again.
        """
        allowance = self._allowance_of(key)
        if allowance is None or not more:
            return
        caller = _caller_of(key)
        wait = self._take(("calls", caller), more, allowance.calls_per_second, now, needed=0.0)
        if wait > 0:
            raise _refused(caller, wait)
        # Charged whatever is left: the debt may be that of this batch's own body.
        self._take(("bytes", caller), more * ROW_BYTES, allowance.bytes_per_second, now, needed=-inf)

    def charge_bytes(self, key: ApiKey | None, more: int, now: float) -> None:
        """Charge bytes beside those that :meth:`charge` knew of; the call goes on, and the next ones wait.

        Args:
            key: As of :meth:`charge`.
            more: Bytes; below 1 nothing is charged.
            now: The monotonic clock, in seconds.
        """
        allowance = self._allowance_of(key)
        if allowance is not None and more > 0:
            self._take(("bytes", _caller_of(key)), more, allowance.bytes_per_second, now, needed=-inf)

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


def _caller_of(key: ApiKey | None) -> str:
    """Return the name that a caller's use is charged to."""
    return ANONYMOUS if key is None else f"tenant {key.tenant}" if key.tenant else f"key {key.id}"


def _refused(caller: str, wait: float) -> QuotaExceeded:
    return QuotaExceeded(f"{caller} has used up its rate limit", retry_after_seconds=max(1, ceil(wait)))
