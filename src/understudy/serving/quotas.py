"""Who has used how much of what they may: one pair of token buckets for each tenant, or key without a tenant."""

from collections import OrderedDict
from math import ceil

from understudy.core.policy import ApiKey
from understudy.core.quotas import ANONYMOUS, NO_LIMIT, Allowance, TokenBucket, call_bytes, most_of
from understudy.errors import QuotaExceeded

MOST_CALLERS = 10_000
"""Callers whose use is remembered; whoever was quiet longest is forgotten first, and then has a full bucket again."""


class KeyQuotas:
    """Charges calls to their callers.

    Args:
        usual: What a key has that says nothing of its own.
        workers: Processes of this proxy: each hands out its part of every rate.
        most_callers: Callers that are remembered.
    """

    def __init__(self, usual: Allowance, *, workers: int = 1, most_callers: int = MOST_CALLERS) -> None:
        self._usual = usual
        self._workers = workers
        self._most_callers = most_callers
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
        own = NO_LIMIT if key is None else key.allowance
        if own == NO_LIMIT == self._usual:
            return
        allowance = own.or_else(self._usual)
        who = ANONYMOUS if key is None else f"tenant {key.tenant}" if key.tenant else f"key {key.id}"
        shared = allowance.shared_by(self._workers)
        wait = max(
            self._take(("calls", who), 1.0, shared.calls_per_second, now),
            self._take(("bytes", who), call_bytes(content_length), shared.bytes_per_second, now),
        )
        if wait > 0:
            raise QuotaExceeded(f"{who} has used up what it may", retry_after_seconds=max(1, ceil(wait)))

    def __len__(self) -> int:
        """Return how many buckets there are."""
        return len(self._buckets)

    def _take(self, place: tuple[str, str], cost: float, rate: float | None, now: float) -> float:
        if rate is None:
            return 0.0
        before = self._buckets.get(place) or TokenBucket(most_of(rate), now)
        self._buckets[place], wait = before.take(cost, rate, now)
        self._buckets.move_to_end(place)
        if len(self._buckets) > 2 * self._most_callers:
            self._buckets.popitem(last=False)
        return wait
