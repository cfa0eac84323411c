"""Deadlines of rows: a row is over when it has its answer or its deadline has come, whichever is first."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeAlias

import structlog

from understudy.core.requests.rank import Ranking
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.tensors import Row
from understudy.core.value import Slotted
from understudy.errors import DeadlineExceeded, UnderstudyError
from understudy.ports.telemetry.tracing import Span

_log = structlog.get_logger(__name__)

ROWS_ENDED_PER_TURN = 4
"""Rows that are shed, or whose deadlines are noticed, in one turn of the event loop. Hundreds at once take some 50 ms
to be answered, and meanwhile the loop would not notice that a call has ended (head-of-line blocking; measured)."""
LATENESS_SECONDS = 0.002
"""For each of these that the first of them is late, there is one more."""
SWEEP_ROWS = 128
"""Rows that are over and still kept, beside as many as are under way."""
TIMER_SECONDS = 0.001
"""How early a timer of the event loop may come."""

Found: TypeAlias = Prediction | Ranking | UnderstudyError
"""What a row or a call ends with."""
Take: TypeAlias = Callable[[list[Any]], None]
"""Takes rows that are over, each once, from the event loop; raises nothing."""


class WaitingRow(Slotted, kw_only=True):
    """A row that has no answer yet; once it is over it takes none, whatever still holds it."""

    row: Row = ()
    deadline: float = 0.0
    since: float = 0.0
    """From when on it waits."""
    keeps_output: bool = False
    """Whether its prediction has the server's own output with it."""
    take: Take | None = None
    """Takes it when it is over, with those that end together. ``None`` once it is over."""
    span: Span | None = None
    """Its call's, where that is traced."""
    timer: asyncio.TimerHandle | None = None
    found: Found | None = None
    """Its prediction or its error, once it is over."""
    ended: float = 0.0
    """When that was; all times are monotonic seconds."""

    def end(self, found: Found, at: float) -> None:
        """Give the row its answer or its error, unless it is over."""
        end_rows((self,), (found,), at)

    def leave(self) -> None:
        """Want no answer any more."""
        self.take = None
        if self.timer is not None:
            self.timer.cancel()


def end_rows(rows: Iterable[WaitingRow], found: Iterable[Found], at: float) -> None:
    """Give each row its answer or its error, unless it is over; what takes several is called once for all of them."""
    together: dict[Take, list[WaitingRow]] = {}
    last, over = None, list[WaitingRow]()
    for waiting, one in zip(rows, found, strict=False):
        take = waiting.take
        if take is None:
            continue
        waiting.take, waiting.found, waiting.ended = None, one, at
        if waiting.timer is not None:
            waiting.timer.cancel()
        if take is not last:  # rows of one call mostly have one
            last, over = take, together.setdefault(take, [])
        over.append(waiting)
    for take, over in together.items():
        try:
            take(over)
        except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the rows of the same call their answers
            _log.exception("answer.failed")


class RowDeadlines:
    """Ends rows at their deadlines.

    One timer serves all rows whose deadlines come in their own order, which is nearly all: a timer of its own is a
    fiftieth of what a call costs, and a time-out around the wait five times that.

    Args:
        now: The monotonic clock, in seconds, that deadlines are given in.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rows: deque[WaitingRow] = deque()
        """By deadline; those that are over leave it from the front."""
        self._sweep_rows = SWEEP_ROWS
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = inf

    def __len__(self) -> int:
        """Return how many rows are kept, some of which may be over."""
        return len(self._rows)

    def watch(self, come: Sequence[WaitingRow], now: float) -> None:
        """End rows at their deadlines."""
        rows = self._rows
        while rows and rows[0].take is None:
            rows.popleft()
        if len(rows) + len(come) > self._sweep_rows:  # one slow row stands before many that are over
            self._rows = rows = deque(one for one in rows if one.take is not None)
            self._sweep_rows = 2 * len(rows) + SWEEP_ROWS
        latest = rows[-1].deadline if rows else -inf
        for waiting in come:
            deadline = waiting.deadline
            if deadline < latest:
                waiting.timer = asyncio.get_running_loop().call_later(deadline - now, self._end_late, waiting)
                continue
            rows.append(waiting)
            if deadline > latest:  # most calls of a turn have one deadline
                latest = deadline
                if self._timer is None or deadline < self._timer_deadline:  # a timer of a row that is over may be late
                    self._expire_after(deadline - now, deadline)

    def _expire_after(self, seconds: float, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        """End rows whose deadline has come, a few, and go on when the next one comes."""
        self._timer = None
        now = self._now()
        due = now + TIMER_SECONDS
        rows = self._rows
        left = rows_ended_per_turn(due - rows[0].deadline) if rows else 0
        while rows and (rows[0].take is None or rows[0].deadline <= due):
            waiting = rows[0]
            if waiting.take is not None and left <= 0:
                self._expire_after(0.0, waiting.deadline)
                return
            rows.popleft()
            left -= waiting.take is not None
            self._end_late(waiting)
        if rows:
            deadline = rows[0].deadline
            self._expire_after(deadline - now, deadline)

    def _end_late(self, waiting: WaitingRow) -> None:
        waiting.end(DeadlineExceeded("upstream"), self._now())


def rows_ended_per_turn(late_seconds: float) -> int:
    """Return how many rows may end in a turn, of which the first is so late."""
    return ROWS_ENDED_PER_TURN + int(max(0.0, late_seconds) / LATENESS_SECONDS)
