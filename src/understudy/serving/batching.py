"""Batch while busy: rows that wait for a version leave together, in one call.

A row goes out at the end of the event loop's turn, with the rows of all requests that the turn found ready, while
fewer than ``concurrency`` calls of its version are in flight, or when the last call left ``gap_seconds`` ago. Otherwise
it leaves with the next call that ends, or when that gap is over, whichever is first, and with it whatever else waits.
While a version is slow the gap is a share of what its slowest call has taken so far, so that one that hangs is asked by
few calls of many rows. An idle proxy adds no latency, a slow model adds at most the gap or that share, and a busy proxy
makes fewer and larger calls.

When ``max_calls`` are in flight, a row waits for at most ``wait_seconds`` and is then refused, as is a row that finds
the queue full. A refusal at once would be a request to try again at once: such callers would be most of the work. Of a
wave that came together a few are refused in each turn of the event loop: calls that end meanwhile are heard of.
Once the row that came first has waited for half of that, the newest goes first: there is more than can be served, and
whoever is served then has its whole deadline left. In order of arrival everybody would be served just before being
refused, and late at the slightest delay: the calls would be made, and their answers be of no use.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeAlias

import structlog

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.tensors import Block, Row, Tensor
from understudy.errors import BadAnswer, DeadlineExceeded, InternalFault, Overloaded, ServingError
from understudy.ports.model_backend import ModelBackend
from understudy.ports.tracing import CURRENT, Span

_log = structlog.get_logger(__name__)

IDLE_POLL_SECONDS = 0.002
SLOW_SHARE = 0.05
"""What a row may wait for company, as a share of the age of the oldest call in flight."""
NEWEST_FIRST_RATIO = 0.5
"""Which share of its longest wait the oldest row has waited when the newest goes first."""
ENDED_AT_ONCE = 4
"""Rows that are refused, or whose deadlines are noticed, in one turn of the event loop. A wave of hundreds takes some
50 ms to be answered, and meanwhile nobody would hear of calls that are free (measured)."""
LATENESS_SECONDS = 0.002
"""For each of these that the first of them is late, there is one more."""
SWEEP_ROWS = 128
"""Rows that are over and still kept, beside as many as are under way."""
CLOSE_SECONDS = 1.0
"""How long calls may take to end once their backend is closed."""
TIMER_SECONDS = 0.001
"""How early a timer of the event loop may come."""

OnRowResult: TypeAlias = Callable[[Prediction | ServingError], None]
"""Takes what became of a row; called once, from the event loop, and raises nothing."""


class _Waiting:
    """A row that has no answer yet; afterwards it waits for nothing, whoever still holds it."""

    __slots__ = ("_on_result", "deadline", "row", "since", "span", "timer")

    def __init__(self, row: Row, deadline: float, since: float, on_result: OnRowResult) -> None:
        self.row = row
        self.since = since
        self.deadline = deadline
        self._on_result: OnRowResult | None = on_result
        self.span = CURRENT.get()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_over(self) -> bool:
        return self._on_result is None

    def end(self, outcome: Prediction | ServingError) -> None:
        """Give the row its answer or its error, unless it has one."""
        on_result = self._on_result
        if on_result is None:
            return
        self.leave()
        try:
            on_result(outcome)
        except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the rows of the same call their answers
            _log.exception("answer.failed")

    def expire(self) -> None:
        self.end(DeadlineExceeded("upstream"))

    def leave(self) -> None:
        """Want no answer any more."""
        self._on_result = None
        if self.timer is not None:
            self.timer.cancel()


class BatchingCaller:
    """Calls one version's backend for single rows.

    Args:
        version: Whose schemas pack and check.
        backend: Its model servers; closed by :meth:`close`.
        concurrency: Calls in flight before rows wait.
        gap_seconds: Longest wait of a row for company.
        batch_rows: Most rows in one call.
        queue_rows: Most rows that may wait; further ones are refused.
        max_calls: Most calls in flight, however slow the version is.
        wait_seconds: Longest wait of a row for a call, when none is free; what is refused is refused after that time.
        now: The monotonic clock, in seconds, that deadlines are given in.
    """

    def __init__(
        self,
        version: ModelVersion,
        backend: ModelBackend,
        *,
        concurrency: int,
        gap_seconds: float,
        batch_rows: int,
        queue_rows: int,
        now: Callable[[], float],
        max_calls: int = 128,
        wait_seconds: float = 0.2,
    ) -> None:
        self.version = version
        self.backend = backend
        self._batches = version.input_schema.batch
        self._concurrency = concurrency
        self._batch_rows = min(batch_rows, backend.rows_per_call or batch_rows) if self._batches else 1
        self._queue_rows = queue_rows
        self._max_calls = max_calls
        self._wait_seconds = wait_seconds
        self._now = now
        self._gap_seconds = gap_seconds
        self._queue: deque[_Waiting] = deque()
        self._turned_away: deque[_Waiting] = deque()
        """Rows that found the queue full, and are refused like those of the queue: as many as come in one wait."""
        self._expiring: deque[_Waiting] = deque()
        """Rows under way by deadline; those that are over leave it from the front."""
        self._sweep_rows = SWEEP_ROWS
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expires_at = inf
        """The deadline that the timer is for."""
        self._is_turn_planned = False
        self._left_at = -inf
        self._gap_timer: asyncio.TimerHandle | None = None
        self._refusal_timer: asyncio.Handle | None = None
        self._calls: dict[asyncio.Task[None], float] = {}
        """When each left, the oldest first."""
        self._blocks = 0
        self.answered_at = -inf
        """When a call was answered last, in the clock's seconds."""

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return len(self._calls)

    @property
    def rows_under_way(self) -> int:
        """Rows that wait, and calls in flight, those of blocks included."""
        return len(self._queue) + len(self._calls) + self._blocks

    async def call(self, row: Row, deadline: float) -> Prediction:
        """Return the prediction for one row.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As the backend, for this row alone.
            Overloaded: No call was free in time, or there are more rows than may wait.
        """
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        waiting = self._enqueue(row, deadline, partial(_set, answer))
        try:
            return await answer
        finally:
            waiting.leave()

    def submit(self, row: Row, deadline: float, on_result: OnRowResult) -> None:
        """Have ``on_result`` called with the row's prediction, or with the error that :meth:`call` would raise for it.

        Raises:
            DeadlineExceeded: There is no time left; ``on_result`` is not called then.
        """
        self._enqueue(row, deadline, on_result)

    def _enqueue(self, row: Row, deadline: float, on_result: OnRowResult) -> _Waiting:
        since = self._now()
        remaining = deadline - since
        if remaining <= 0:
            raise DeadlineExceeded("queue")
        loop = asyncio.get_running_loop()
        waiting = _Waiting(row, deadline, since, on_result)
        if len(self._queue) >= self._queue_rows:
            self._dispatch_if_due()  # a turn may bring more rows than may wait, of which none has to
        if len(self._queue) >= self._queue_rows:
            self._turn_away(waiting, remaining)
            return waiting
        self._watch(waiting, remaining)
        self._queue.append(waiting)
        if not self._is_turn_planned:
            self._is_turn_planned = True
            loop.call_soon(self._end_turn)
        return waiting

    def _turn_away(self, waiting: _Waiting, remaining: float) -> None:
        """Refuse a row after the wait of all others, or at its deadline if that is sooner."""
        if remaining < self._wait_seconds:
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(remaining, waiting.end, self._overloaded())
            return
        self._turned_away.append(waiting)
        if self._refusal_timer is None:
            self._refuse_later()

    def _end_turn(self) -> None:
        """Send what is due, once every request that the event loop found ready has had its row queued."""
        self._is_turn_planned = False
        self._dispatch_if_due()

    def _watch(self, waiting: _Waiting, remaining: float) -> None:
        """See to it that a row is over at its deadline.

        One timer serves all rows whose deadlines come in their own order, which is nearly all: a timer of its own is a
        fiftieth of what a call costs, and a time-out around the wait five times that.
        """
        expiring = self._expiring
        while expiring and expiring[0].is_over:
            expiring.popleft()
        if len(expiring) >= self._sweep_rows:  # one slow row stands before many that are over
            self._expiring = expiring = deque(one for one in expiring if not one.is_over)
            self._sweep_rows = 2 * len(expiring) + SWEEP_ROWS
        if expiring and waiting.deadline < expiring[-1].deadline:
            waiting.timer = asyncio.get_running_loop().call_later(remaining, waiting.expire)
            return
        expiring.append(waiting)
        if (
            self._expiry_timer is None or waiting.deadline < self._expires_at
        ):  # a timer of a row that is over may be late
            self._expire_after(remaining, waiting.deadline)

    def _expire_after(self, seconds: float, deadline: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expires_at = deadline
        self._expiry_timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        """End rows whose deadline has come, a few, and look again when the next one comes."""
        self._expiry_timer = None
        now = self._now()
        due = now + TIMER_SECONDS
        expiring = self._expiring
        left = _ended_at_once(due - expiring[0].deadline) if expiring else 0
        while expiring and (expiring[0].is_over or expiring[0].deadline <= due):
            waiting = expiring[0]
            if not waiting.is_over and left <= 0:
                self._expire_after(0.0, waiting.deadline)
                return
            expiring.popleft()
            left -= not waiting.is_over
            waiting.expire()
        if expiring:
            deadline = expiring[0].deadline
            self._expire_after(deadline - now, deadline)

    async def call_block(self, block: Block, deadline: float) -> Tensor:
        """Return the answer to rows that are a call of their own: they never wait for company, nor for each other.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As the backend.
            Overloaded: As many such calls are in flight as may be.
        """
        if self._blocks >= self._max_calls:
            raise Overloaded(f"{self._blocks} rank calls wait for {self.version.model_name} {self.version.version}")
        remaining = deadline - self._now()
        if remaining <= 0:
            raise DeadlineExceeded("queue")
        self._blocks += 1
        try:
            return await self.backend.infer_block(block, remaining)
        finally:
            self._blocks -= 1

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether the version's model servers say that they serve it."""
        return await self.backend.ready(timeout_seconds)

    async def idle(self, timeout_seconds: float) -> None:
        """Wait until no row waits and no call is in flight, at most ``timeout_seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self._queue or self._calls or self._blocks:
                    await (asyncio.wait(self._calls) if self._calls else asyncio.sleep(IDLE_POLL_SECONDS))

    async def close(self) -> None:
        """Close the backend; rows that wait or are in flight fail, and have been told so when this returns."""
        await self.backend.close()
        await self.idle(CLOSE_SECONDS)

    def _dispatch_if_due(self) -> None:
        """Send what is due, and see to it that the rest leaves when the gap is over and does not wait for ever."""
        while self._queue and len(self._calls) < self._max_calls:
            gap_seconds = self._gap_seconds_left()
            if gap_seconds > 0:
                if self._gap_timer is None:
                    self._gap_timer = asyncio.get_running_loop().call_later(gap_seconds, self._gap_is_over)
                break
            self._dispatch()
        if self._queue and self._refusal_timer is None:
            self._refuse_later()

    def _refuse_later(self) -> None:
        """Look again when a row will have waited long enough: one timer for all rows."""
        since = min(rows[0].since for rows in (self._queue, self._turned_away) if rows)
        remaining = since + self._wait_seconds - self._now()
        self._refusal_timer = asyncio.get_running_loop().call_later(max(remaining, 0.0), self._end_overdue)

    def _end_overdue(self) -> None:
        """Refuse rows that have waited long enough, a few; those that only waited for company are sent."""
        self._refusal_timer = None
        due = self._now() - self._wait_seconds + TIMER_SECONDS
        while self._queue and self._queue[0].since <= due and len(self._calls) < self._max_calls:
            self._dispatch()
        problem = self._overloaded()
        is_more = False
        for rows in (self._queue, self._turned_away):
            left = _ended_at_once(due - rows[0].since) if rows else 0
            while rows and rows[0].since <= due:
                if not rows[0].is_over and left <= 0:
                    is_more = True
                    break
                waiting = rows.popleft()
                left -= not waiting.is_over
                waiting.end(problem)
        if is_more:
            self._refusal_timer = asyncio.get_running_loop().call_soon(self._end_overdue)
        elif self._queue or self._turned_away:
            self._refuse_later()

    def _overloaded(self) -> Overloaded:
        return Overloaded(f"{len(self._queue)} rows wait for {self.version.model_name} {self.version.version}")

    def _gap_seconds_left(self) -> float:
        if len(self._calls) < self._concurrency or len(self._queue) >= self._batch_rows:
            return 0.0
        now = self._now()
        oldest_seconds = now - next(iter(self._calls.values()))
        return self._left_at + max(self._gap_seconds, SLOW_SHARE * oldest_seconds) - now

    def _gap_is_over(self) -> None:
        self._gap_timer = None
        self._dispatch_if_due()

    def _dispatch(self) -> None:
        """Send the rows that wait, as one call."""
        batch = self._take()
        if not batch:
            return
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._calls[task] = self._left_at
        task.add_done_callback(self._finished)

    def _take(self) -> list[_Waiting]:
        """Return the rows that leave now, as one call; none when nobody waits any more for what was queued."""
        now = self._now()
        batch: list[_Waiting] = []
        queue = self._queue
        is_crowded = bool(queue) and now - queue[0].since >= NEWEST_FIRST_RATIO * self._wait_seconds
        take = queue.pop if is_crowded else queue.popleft
        while queue and len(batch) < self._batch_rows:
            waiting = take()
            if not waiting.is_over:
                batch.append(waiting)
        if batch:
            self._left_at = now
        return batch

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._calls.pop(task, None)
        self._dispatch_if_due()

    async def _run(self, batch: list[_Waiting]) -> None:
        """Answer the rows of a call and, where no other call was free, of those that follow it at once.

        With a task of its own for each the call that is free now would wait for two turns of the event loop, which are
        long in a crowd. A call that failed is followed by one with a task of its own: a failure may be known without
        waiting for a turn.
        """
        task = asyncio.current_task()
        assert task is not None
        while batch:
            CURRENT.set(_span_of(batch))  # the turn that sends it may belong to others
            is_answered = False
            try:
                is_answered = await self._answer(batch, _Retries())
            except Exception:  # noqa: BLE001 - a defect of ours: its rows must not wait for their deadlines
                _log.exception("model_call.failed", model=self.version.model_name, version=self.version.version)
                _fail(batch, InternalFault())
            was_none_free = len(self._calls) >= self._max_calls
            self._calls.pop(task, None)
            is_due = is_answered and was_none_free and self._gap_seconds_left() <= 0
            batch = self._take() if is_due else []
            if batch:
                self._calls[task] = self._left_at

    async def _answer(self, batch: list[_Waiting], retries: "_Retries") -> bool:
        """Answer each row, or give it its own error; return whether a model server answered for all of them."""
        try:
            tensor = await self._infer([waiting.row for waiting in batch], max(w.deadline for w in batch))
            predictions = predictions_of(self.version.output_schema, tensor, len(batch), batch=self._batches)
        except BadAnswer as problem:
            await self._answer_halves(batch, retries, problem)
        except ServingError as problem:
            _fail(batch, problem)
        else:
            for waiting, prediction in zip(batch, predictions, strict=True):
                waiting.end(prediction)
            return True
        return False

    async def _answer_halves(self, batch: list[_Waiting], retries: "_Retries", problem: BadAnswer) -> None:
        """Find the row that spoilt a call by halving; a version that refuses everything is not asked for ever."""
        waiting = [one for one in batch if not one.is_over]
        if len(batch) == 1 or not retries.left:
            _fail(waiting, problem)
            return
        retries.left -= 1
        middle = len(waiting) // 2
        for half in (waiting[:middle], waiting[middle:]):
            if half:
                await self._answer(half, retries)

    async def _infer(self, rows: list[Row], deadline: float) -> Tensor:
        budget = deadline - self._now()
        if budget <= 0:
            raise DeadlineExceeded("queue")
        answer = await self.backend.infer(rows, budget)
        self.answered_at = self._now()
        return answer


def _span_of(batch: list[_Waiting]) -> Span | None:
    """Return what stands for the traced ones among these rows in the call that they share."""
    spans = [waiting.span for waiting in batch if waiting.span is not None]
    return spans[0].together(spans[1:]) if spans else None


class _Retries:
    """How often one batch may be cut in half: enough to find two spoilt rows among 256."""

    def __init__(self) -> None:
        self.left = 16


def _ended_at_once(late_seconds: float) -> int:
    return ENDED_AT_ONCE + int(max(0.0, late_seconds) / LATENESS_SECONDS)


def _set(answer: asyncio.Future[Prediction], outcome: Prediction | ServingError) -> None:
    if answer.done():
        return
    if isinstance(outcome, ServingError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _fail(batch: list[_Waiting], problem: ServingError) -> None:
    for waiting in batch:
        waiting.end(problem)
