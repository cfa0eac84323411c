"""Batch while busy: rows that wait for a version leave together with its next free call.

A row goes out at once while fewer than ``concurrency`` calls of its version are in flight. No timer: an idle proxy adds
no latency, a busy one makes fewer and larger calls.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from understudy.core.outputs import Prediction, predictions_of
from understudy.core.policy import ModelVersion
from understudy.core.tensors import Row
from understudy.errors import BadAnswer, DeadlineExceeded, Overloaded, ServingError
from understudy.ports import ModelBackend


class _Waiting(NamedTuple):
    row: Row
    deadline: float
    answer: asyncio.Future[Prediction]


class BatchingCaller:
    """Calls one version's backend for single rows.

    Args:
        version: Whose schemas pack and check.
        backend: Its model servers; closed by :meth:`close`.
        concurrency: Calls in flight before rows wait.
        batch_rows: Most rows in one call.
        queue_rows: Most rows that may wait; further ones are refused.
        now: The monotonic clock, in seconds, that deadlines are given in.
    """

    def __init__(
        self,
        version: ModelVersion,
        backend: ModelBackend,
        *,
        concurrency: int,
        batch_rows: int,
        queue_rows: int,
        now: Callable[[], float],
    ) -> None:
        self.version = version
        self.backend = backend
        self._batches = version.input_schema.batch
        # A server without a batch dimension gets one row a call, so it may have as many calls as a batch has rows.
        self._concurrency = concurrency if self._batches else max(concurrency, batch_rows)
        self._batch_rows = batch_rows if self._batches else 1
        self._queue_rows = queue_rows
        self._now = now
        self._queue: deque[_Waiting] = deque()
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return len(self._calls)

    async def call(self, row: Row, deadline: float) -> Prediction:
        """Return the prediction for one row; the caller ends its own wait at the ``deadline``.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As the backend, for this row alone.
            Overloaded: More rows wait than may.
        """
        if len(self._queue) >= self._queue_rows:
            raise Overloaded(f"{len(self._queue)} rows wait for {self.version.model_name} {self.version.version}")
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(row, deadline, answer))
        if len(self._calls) < self._concurrency:
            self._dispatch()
        return await answer

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether the version's model servers say that they serve it."""
        return await self.backend.ready(timeout_seconds)

    async def idle(self, timeout_seconds: float) -> None:
        """Wait until no call is in flight, at most ``timeout_seconds``."""
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=timeout_seconds)

    async def close(self) -> None:
        """Close the backend; rows that wait or are in flight fail."""
        await self.backend.close()

    def _dispatch(self) -> None:
        """Send the rows that wait, as one call."""
        batch: list[_Waiting] = []
        while self._queue and len(batch) < self._batch_rows:
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                batch.append(waiting)
        if not batch:
            return
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._calls.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if self._queue:
            self._dispatch()

    async def _run(self, batch: list[_Waiting]) -> None:
        try:
            predictions = await self._infer([waiting.row for waiting in batch], max(w.deadline for w in batch))
        except BadAnswer as problem:
            if len(batch) == 1:
                _fail(batch, problem)
            else:
                # One bad row may have spoilt the call for all: each is asked for again by itself.
                await asyncio.gather(*(self._run([waiting]) for waiting in batch if not waiting.answer.done()))
        except ServingError as problem:
            _fail(batch, problem)
        except BaseException:
            _fail(batch, BadAnswer("the call to the model server failed inside the proxy"))
            raise
        else:
            for waiting, prediction in zip(batch, predictions, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(prediction)

    async def _infer(self, rows: list[Row], deadline: float) -> list[Prediction]:
        budget = deadline - self._now()
        if budget <= 0:
            raise DeadlineExceeded("queue")
        tensor = await self.backend.infer(rows, budget)
        return predictions_of(self.version.output_schema, tensor, len(rows), batch=self._batches)


def _fail(batch: list[_Waiting], problem: ServingError) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(problem)
