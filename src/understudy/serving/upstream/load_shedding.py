"""Load shedding and LIFO under overload: what happens to rows for which no call is free.

Backpressure bounds the calls in flight, so rows wait. Each waits for at most ``wait_seconds`` and is then shed with
E507, as is a row that finds the queue full. Shedding at once would invite a retry at once: such callers would be most
of the work. Of rows that came together a few are shed in each turn of the event loop, so that calls that end meanwhile
are noticed.

Under overload the newest row is served first (LIFO): first-in-first-out would finish each row just as it times out, and
late at the slightest delay. Overload begins once the oldest row has waited for half of ``wait_seconds``.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from understudy.errors import Overloaded
from understudy.serving.upstream.row_deadlines import TIMER_SECONDS, WaitingRow, rows_ended_per_turn

LIFO_RATIO = 0.5
"""Share of its longest wait after which the oldest row makes the queue last-in-first-out."""


class LoadShedder:
    """Sheds rows that have waited for too long.

    Args:
        queue: The rows that wait, by when they came; shared with the caller that sends them.
        wait_seconds: Longest wait of a row for a call.
        now: The monotonic clock, in seconds.
        send_due: Sends what may leave of the rows that came before a moment: they waited for company only.
        overloaded: Makes the error of rows that are shed.
    """

    def __init__(
        self,
        queue: deque[WaitingRow],
        *,
        wait_seconds: float,
        now: Callable[[], float],
        send_due: Callable[[float], None],
        overloaded: Callable[[], Overloaded],
    ) -> None:
        self.lifo_after_seconds = LIFO_RATIO * wait_seconds
        """How long the oldest row has waited when the newest goes first."""
        self.timer: asyncio.Handle | None = None
        """Set while rows are watched."""
        self._queue = queue
        self._rejected: deque[WaitingRow] = deque()
        """Rows that found the queue full, and are shed like those of the queue: as many as come in one wait."""
        self._wait_seconds = wait_seconds
        self._now = now
        self._send_due = send_due
        self._overloaded = overloaded

    def close(self) -> None:
        """Let go of the caller, unless rows of it are still to be shed."""
        if self._queue or self._rejected:
            return
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._send_due, self._overloaded = _send_nothing, Overloaded

    def reject(self, waiting: WaitingRow, remaining: float) -> None:
        """Shed a row that found the queue full, after the wait of all others, or at its deadline if that is sooner."""
        if remaining < self._wait_seconds:
            problem = self._overloaded()
            waiting.timer = asyncio.get_running_loop().call_later(remaining, self._shed_one, waiting, problem)
            return
        self._rejected.append(waiting)
        if self.timer is None:
            self.watch()

    def watch(self) -> None:
        """Shed rows once they have waited long enough: one timer for all."""
        since = min(rows[0].since for rows in (self._queue, self._rejected) if rows)
        remaining = since + self._wait_seconds - self._now()
        self.timer = asyncio.get_running_loop().call_later(max(remaining, 0.0), self._shed)

    def _shed(self) -> None:
        """Shed rows that have waited long enough, a few; those that only waited for company are sent."""
        self.timer = None
        due = self._now() - self._wait_seconds + TIMER_SECONDS
        self._send_due(due)
        problem = self._overloaded()
        is_more = False
        for rows in (self._queue, self._rejected):
            left = rows_ended_per_turn(due - rows[0].since) if rows else 0
            while rows and rows[0].since <= due:
                if rows[0].take is not None and left <= 0:
                    is_more = True
                    break
                waiting = rows.popleft()
                left -= waiting.take is not None
                self._shed_one(waiting, problem)
        if is_more:
            self.timer = asyncio.get_running_loop().call_soon(self._shed)
        elif self._queue or self._rejected:
            self.watch()

    def _shed_one(self, waiting: WaitingRow, problem: Overloaded) -> None:
        waiting.end(problem, self._now())


def _send_nothing(_due: float) -> None:
    """Nothing waits at a caller that was closed."""
