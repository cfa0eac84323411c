"""Answers that callers do not take (slow readers): how many stand at a time, for how long, and which are ended.

gRPC sends an answer as far as its caller's HTTP/2 window allows, and holds the call until all of it is sent.
"""

import asyncio
import gc
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, TypeAlias

Handling: TypeAlias = "asyncio.Task[Any]"
"""The task in which gRPC runs a call's handler, and sends what it returns."""
SWEEP_SECONDS = 1.0
"""How often late answers are looked for, while any stand."""
BYTES_PER_SECOND = 65_536
"""That a caller takes at least, beyond the time that each answer has."""
PART_ENDED = 0.25
"""Of a bound, that is ended at once: to find gRPC's tasks takes a look at all of them."""
FRESH_SECONDS = 0.1
"""For which an answer may be about to leave: a caller that reads many calls' answers has them so for a turn or two."""
_OUTER = "rpc_task"
"""gRPC's name of the task that began a call's handler, and waits for the caller's end of the call."""


class UnreadLimits(NamedTuple):
    """Of answers that stand at a time."""

    answers: int
    size_bytes: int
    seconds: float
    """For which one may stand, beside what :data:`BYTES_PER_SECOND` give it."""


class _Unread(NamedTuple):
    caller: str
    size: int
    since: float
    due: float


class UnreadAnswers:
    """Holds the calls whose answers gRPC sends, and ends those that stand too long or are too many.

    Where too many stand, or too many bytes, the oldest of the connection that has the largest share give way, and then
    the oldest of all; those that have not stood for :data:`FRESH_SECONDS` come last. Answers to callers that read leave
    within a turn or two, however many come at once.

    Args:
        limits: How many, and for how long.
        now: The event loop's clock.
        end: Ends calls by force.
        on_ended: Called with why, and how many were ended: ``late``, ``many`` or ``memory``.
    """

    def __init__(
        self,
        limits: UnreadLimits,
        now: Callable[[], float],
        end: Callable[[Collection[Handling]], None],
        on_ended: Callable[[str, int], None],
    ) -> None:
        self._limits = limits
        self._now = now
        self._end = end
        self._on_ended = on_ended
        self._standing: dict[Handling, _Unread] = {}
        """The oldest first."""
        self._size = 0
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many answers stand."""
        return len(self._standing)

    def hold(self, call: Handling, caller: str, size: int) -> None:
        """Hold a call whose answer gRPC has from now on, until it is released or over.

        Args:
            call: gRPC's task.
            caller: Names the connection.
            size: The answer's, in bytes.
        """
        if len(self._standing) >= self._limits.answers or self._size + size > self._limits.size_bytes:
            self._end_all(self._give_way(), "many")
        now = self._now()
        due = now + self._limits.seconds + size / BYTES_PER_SECOND
        self._standing[call] = _Unread(caller, size, now, due)
        self._size += size
        call.add_done_callback(self.release)
        if self._sweeping is None:
            self._sweeping = call.get_loop().call_later(SWEEP_SECONDS, self.sweep)

    def release(self, call: Handling) -> None:
        """Hold a call no longer: its answer was taken, or it is over."""
        call.remove_done_callback(self.release)
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

    def _give_way(self) -> set[Handling]:
        """Return calls whose end makes room: the oldest of the connection that has most, and then the oldest of all."""
        fresh = self._now() - FRESH_SECONDS
        stale = {call: one for call, one in self._standing.items() if one.since <= fresh} or self._standing
        shares: defaultdict[str, float] = defaultdict(float)
        for one in stale.values():
            shares[one.caller] += self._share(one)
        most = max(shares, key=shares.__getitem__, default=None)
        found: set[Handling] = set()
        room = 0.0
        for call in sorted(self._standing, key=lambda call: (call not in stale, self._standing[call].caller != most)):
            if room >= PART_ENDED:
                break
            found.add(call)
            room += self._share(self._standing[call])
        return found

    def _share(self, one: _Unread) -> float:
        return 1 / self._limits.answers + one.size / self._limits.size_bytes

    def _end_all(self, calls: set[Handling], why: str) -> None:
        if not calls:
            return
        for call in calls:
            self.release(call)
        self._end(calls)
        self._on_ended(why, len(calls))


def log_no_callers_that_left() -> None:
    """Have gRPC log no call whose caller closed its connection and left the answer.

    It logs that with a traceback, as often as callers like. Nothing is wrong then, and the call was counted.
    """
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_no_caller_that_left)  # once, however often it is added


def _is_no_caller_that_left(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or kind.__name__ != "ExecuteBatchError"


def handling() -> Handling:
    """Return the task in which a handler of gRPC's runs."""
    task = asyncio.current_task()
    assert task is not None
    return task


def end_calls(calls: Collection[Handling]) -> None:
    """End calls of gRPC's asyncio server by force, whatever they wait for: their streams are reset.

    The asyncio API has no word for that. But gRPC's core cancels a call once nothing refers to it any more, and two
    tasks of the server do: the handler's, and the one that began it and waits for the caller's end of the call. When
    both are cancelled, the call goes. What links the two is that the coroutine of the second refers to the first
    (grpc 1.76, ``_schedule_rpc_coro``); were that so no more, streams would stand until their connection is too old.
    """
    ended = set(calls)
    for task in asyncio.all_tasks():
        if task.get_name() == _OUTER and not ended.isdisjoint(_tasks_of(task)):
            task.cancel()
    for call in ended:
        call.cancel()


def _tasks_of(task: Handling) -> Iterator[Handling]:
    """Yield the tasks that a task's coroutine refers to; a compiled one has its variables in an object of their own."""
    direct = gc.get_referents(task.get_coro())
    for one in (*direct, *gc.get_referents(*direct)):
        if isinstance(one, asyncio.Task):
            yield one
