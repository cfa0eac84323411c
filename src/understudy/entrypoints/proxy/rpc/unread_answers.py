"""Answers that callers do not take (slow readers): how many stand at a time, for how long, and which are ended.

An answer is sent as far as its caller's windows of HTTP/2 allow, and its socket takes; the rest of it stands.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple, Protocol

SWEEP_SECONDS = 1.0
"""How often late answers are looked for, while any stand."""
BYTES_PER_SECOND = 65_536
"""That a caller takes at least, beyond the time that each answer has."""
PART_ENDED = 0.25
"""Of a bound, that is ended at once: to find which ones takes a look at all of them."""
FRESH_SECONDS = 0.1
"""For which an answer may be about to leave: a caller that reads many calls' answers has them so for a turn or two."""


class Answered(Protocol):
    """A call of which an answer is sent."""

    def reset(self) -> None:
        """End it by force: its stream is reset."""


class UnreadLimits(NamedTuple):
    """Of answers that stand at a time."""

    answers: int
    size_bytes: int
    seconds: float
    """For which one may stand, beside what :data:`BYTES_PER_SECOND` give it."""


class _Unread(NamedTuple):
    caller: object
    size: int
    since: float
    due: float


class UnreadAnswers:
    """Holds the calls whose answers wait for their callers, and ends those that stand too long or are too many.

    Where too many stand, or too many bytes, the oldest of the connection that has the largest share give way, and then
    the oldest of all; those that have not stood for :data:`FRESH_SECONDS` come last. Answers to callers that read leave
    within a turn or two, however many come at once.

    Args:
        limits: How many, and for how long.
        now: The event loop's clock.
        on_ended: Called with why, and how many were ended: ``late``, ``many`` or ``memory``.
    """

    def __init__(
        self,
        limits: UnreadLimits,
        now: Callable[[], float],
        on_ended: Callable[[str, int], None],
    ) -> None:
        self._limits = limits
        self._now = now
        self._on_ended = on_ended
        self._standing: dict[Answered, _Unread] = {}
        """The oldest first."""
        self._size = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many answers stand."""
        return len(self._standing)

    def hold(self, call: Answered, caller: object, size: int) -> None:
        """Hold a call whose answer has to wait, until it is released.

        Args:
            call: It is over but for that.
            caller: Names the connection.
            size: The answer's, in bytes.
        """
        if len(self._standing) >= self._limits.answers or self._size + size > self._limits.size_bytes:
            self._end_all(self._give_way(), "many")
        now = self._now()
        due = now + self._limits.seconds + size / BYTES_PER_SECOND
        self._standing[call] = _Unread(caller, size, now, due)
        self._size += size
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self.sweep)

    def release(self, call: Answered) -> None:
        """Hold a call no longer: its answer was taken, or it is over."""
        found = self._standing.pop(call, None)
        if found is not None:
            self._size -= found.size

    def end_all(self) -> None:
        """End every call whose answer stands: the process is short of memory."""
        self._end_all(set(self._standing), "memory")

    def close(self) -> None:
        """Look for late answers no more."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def sweep(self) -> None:
        """End those that are late, and look again while any stand."""
        self._sweeping = None
        now = self._now()
        self._end_all({call for call, one in self._standing.items() if one.due <= now}, "late")
        if self._standing:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self.sweep)

    def _give_way(self) -> set[Answered]:
        """Return calls whose end makes room: the oldest of the connection that has most, and then the oldest of all."""
        fresh = self._now() - FRESH_SECONDS
        stale = {call: one for call, one in self._standing.items() if one.since <= fresh} or self._standing
        shares: defaultdict[object, float] = defaultdict(float)
        for one in stale.values():
            shares[one.caller] += self._share(one)
        most = max(shares, key=shares.__getitem__, default=None)
        found: set[Answered] = set()
        room = 0.0
        for call in sorted(self._standing, key=lambda call: (call not in stale, self._standing[call].caller != most)):
            if room >= PART_ENDED:
                break
            found.add(call)
            room += self._share(self._standing[call])
        return found

    def _share(self, one: _Unread) -> float:
        return 1 / self._limits.answers + one.size / self._limits.size_bytes

    def _end_all(self, calls: set[Answered], why: str) -> None:
        if not calls:
            return
        for call in calls:
            self.release(call)
            call.reset()
        self._on_ended(why, len(calls))
