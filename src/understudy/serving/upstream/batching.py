"""Batch while busy: rows that wait for a version leave together, in one call.

A row goes out at the end of the event loop's turn, with the rows of all requests that the turn found ready, while
fewer than ``concurrency`` calls of its version are in flight, or when the last call left ``gap_seconds`` ago. Otherwise
it leaves with the next call that ends, or when that gap is over, whichever is first, and with it whatever else waits.
While a version is slow the gap is a share of what its slowest call has taken so far, so that one that hangs is asked by
few calls of many rows. An idle proxy adds no latency, a slow model adds at most the gap or that share, and a busy proxy
makes fewer and larger calls.

When ``max_calls`` are in flight rows wait (backpressure), and are shed after a while: see ``load_shedding.py``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf

import structlog

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction
from understudy.core.schema.tensors import Block, Row, Tensor
from understudy.errors import BackendUnavailable, DeadlineExceeded, InternalFault, Overloaded, ServingError
from understudy.ports.telemetry.tracing import CURRENT, Span
from understudy.ports.upstream.model_backend import ModelBackend
from understudy.serving.turn_group import TurnGroup
from understudy.serving.upstream.batch_inference import BatchInference
from understudy.serving.upstream.load_shedding import LoadShedder
from understudy.serving.upstream.row_deadlines import RowDeadlines, WaitingRow

_log = structlog.get_logger(__name__)

IDLE_POLL_SECONDS = 0.002
SLOW_SHARE = 0.05
"""What a row may wait for company, as a share of the age of the oldest call in flight."""
CLOSE_SECONDS = 1.0
"""How long calls may take to end once their backend is closed."""


class BatchingCaller:
    """Calls one version's backend for single rows.

    Args:
        version: Its schemas pack and check.
        backend: Its model servers; closed by :meth:`close`.
        concurrency: Calls in flight before rows wait.
        gap_seconds: Longest wait of a row for company.
        batch_rows: Most rows in one call.
        queue_rows: Most rows that may wait; further ones are shed.
        max_calls: Most calls in flight, however slow the version is.
        wait_seconds: Longest wait of a row for a call, when none is free; then it is shed.
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
        self._concurrency = concurrency
        self._batch_rows = min(batch_rows, backend.rows_per_call or batch_rows) if version.input_schema.batch else 1
        self._queue_rows = queue_rows
        self._max_calls = max_calls
        self._now = now
        self._gap_seconds = gap_seconds
        self._queue: deque[WaitingRow] = deque()
        self._deadlines = RowDeadlines(now)
        self._shedder = LoadShedder(
            self._queue,
            wait_seconds=wait_seconds,
            now=now,
            send_due=self._dispatch_until,
            overloaded=self._overloaded,
        )
        self._come = TurnGroup[WaitingRow](self.submit)
        self._left_at = -inf
        self._gap_timer: asyncio.TimerHandle | None = None
        self._calls: dict[asyncio.Task[None], float] = {}
        """When each left, the oldest first."""
        self._blocks = 0
        self._inference = BatchInference(version, backend, now)

    @property
    def answered_at(self) -> float:
        """When a call was answered last, in the clock's seconds."""
        return self._inference.answered_at

    @property
    def rows_under_way(self) -> int:
        """Rows that wait, and calls in flight, those of blocks included."""
        return len(self._come) + len(self._queue) + len(self._calls) + self._blocks

    async def call(self, row: Row, deadline: float, *, keeps_output: bool = False) -> Prediction:
        """Return the prediction for one row, with the server's own output if it ``keeps_output``.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As the backend, for this row alone.
            Overloaded: No call was free in time, or there are more rows than may wait.
        """
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        waiting = WaitingRow(
            row=row,
            deadline=deadline,
            since=self._now(),
            take=partial(_set, answer),
            span=CURRENT.get(),
            keeps_output=keeps_output,
        )
        self._come.add(waiting)
        try:
            return await answer
        finally:
            waiting.leave()

    def submit(self, rows: Sequence[WaitingRow]) -> None:
        """Have rows answered that are all that a turn of the event loop has for the version: what is due leaves now.

        A row without time left ends at once. A defect of ours ends all of them: none waits for what does not come.
        """
        try:
            self._submit(rows)
        except Exception:  # noqa: BLE001 - whatever it is, these rows are answered, and once
            self._note_defect()
            self._inference.fail(rows, InternalFault())

    def _submit(self, rows: Iterable[WaitingRow]) -> None:
        now, queue, limit = self._now(), self._queue, self._queue_rows
        taken = []
        for waiting in rows:
            if waiting.deadline <= now:
                waiting.end(DeadlineExceeded("queue"), now)
            elif len(queue) < limit or self._has_room():
                queue.append(waiting)
                taken.append(waiting)
            else:
                self._shedder.reject(waiting, waiting.deadline - now)
        self._deadlines.watch(taken, now)
        self._dispatch_if_due()

    def _has_room(self) -> bool:
        """Whether one more row may wait; a turn may bring more rows than may wait, of which none has to."""
        if len(self._queue) >= self._queue_rows:
            self._dispatch_if_due()
        return len(self._queue) < self._queue_rows

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
                while self.rows_under_way:
                    await (asyncio.wait(self._calls) if self._calls else asyncio.sleep(IDLE_POLL_SECONDS))

    async def close(self) -> None:
        """Close the backend; rows that wait or are in flight have failed when this returns.

        Its parts let go of it then: once no call holds it, it is gone, and so is what it holds of its version.
        """
        await self.backend.close()
        await self.idle(CLOSE_SECONDS)
        self._come.take_by(_refuse)
        self._shedder.close()

    def _dispatch_if_due(self) -> None:
        """Send what is due, and have the rest sent when the gap is over, or shed in time."""
        while self._queue and len(self._calls) < self._max_calls:
            gap_seconds = self._gap_seconds_left()
            if gap_seconds > 0:
                if self._gap_timer is None:
                    self._gap_timer = asyncio.get_running_loop().call_later(gap_seconds, self._gap_is_over)
                break
            self._dispatch()
        if self._queue and self._shedder.timer is None:
            self._shedder.watch()

    def _dispatch_until(self, due: float) -> None:
        """Send the rows that came before ``due``, while calls are free."""
        while self._queue and self._queue[0].since <= due and len(self._calls) < self._max_calls:
            self._dispatch()

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

    def _take(self) -> list[WaitingRow]:
        """Return the rows that leave now, as one call; none when all that were queued are over."""
        now = self._now()
        batch: list[WaitingRow] = []
        queue = self._queue
        is_overloaded = bool(queue) and now - queue[0].since >= self._shedder.lifo_after_seconds
        take = queue.pop if is_overloaded else queue.popleft  # LIFO under overload
        while queue and len(batch) < self._batch_rows:
            waiting = take()
            if waiting.take is not None:
                batch.append(waiting)
        if batch:
            self._left_at = now
        return batch

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._calls.pop(task, None)
        self._dispatch_if_due()

    async def _run(self, batch: list[WaitingRow]) -> None:
        """Answer the rows of a call and, where no other call was free, of those that follow it at once.

        With a task of its own for each the call that is free now would wait for two turns of the event loop, which
        are long under overload. A call that failed is followed by one with a task of its own: a failure may be known
        without waiting for a turn.
        """
        task = asyncio.current_task()
        assert task is not None
        while batch:
            CURRENT.set(_span_of(batch))  # the turn that sends it may be another call's
            is_answered = False
            try:
                is_answered = await self._inference.answer(batch)
            except Exception:  # noqa: BLE001 - a defect of ours: its rows must not wait for their deadlines
                self._note_defect()
                self._inference.fail(batch, InternalFault())
            was_none_free = len(self._calls) >= self._max_calls
            self._calls.pop(task, None)
            is_due = is_answered and was_none_free and self._gap_seconds_left() <= 0
            batch = self._take() if is_due else []
            if batch:
                self._calls[task] = self._left_at

    def _note_defect(self) -> None:
        _log.exception("model_call.failed", model=self.version.model_name, version=self.version.version)


def _span_of(batch: list[WaitingRow]) -> Span | None:
    """Return what stands for the traced ones among these rows in the call that they share."""
    spans = [waiting.span for waiting in batch if waiting.span is not None]
    return spans[0].together(spans[1:]) if spans else None


def _refuse(rows: Iterable[WaitingRow]) -> None:
    """End rows that come to a caller after it was closed."""
    for waiting in rows:
        waiting.end(BackendUnavailable("the version's backend is closed"), waiting.since)


def _set(answer: asyncio.Future[Prediction], over: list[WaitingRow]) -> None:
    (waiting,) = over
    if answer.done():
        return
    if isinstance(waiting.found, Prediction):
        answer.set_result(waiting.found)
    else:
        assert isinstance(waiting.found, ServingError)
        answer.set_exception(waiting.found)
