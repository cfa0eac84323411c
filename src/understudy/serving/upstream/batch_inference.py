"""One call for several rows: each row gets its own prediction or its own error."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import inf

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import predictions_of
from understudy.core.schema.tensors import Row, Tensor
from understudy.errors import BadAnswer, DeadlineExceeded, ServingError
from understudy.ports.upstream.model_backend import ModelBackend
from understudy.serving.upstream.row_deadlines import WaitingRow

MAX_HALVINGS = 16
"""How often one batch may be cut in half: enough to find two spoilt rows among 256."""
INLINE_VALUES = 65_536
"""Of an answer that becomes predictions on the event loop, in some 10 ms; the millions that fit into a message take up
to 0.3 s, in a thread (measured)."""


class BatchInference:
    """Asks a version's backend for batches of rows.

    Args:
        version: Its schemas check the answers.
        backend: Its model servers.
        now: The monotonic clock, in seconds, that deadlines are given in.
    """

    def __init__(self, version: ModelVersion, backend: ModelBackend, now: Callable[[], float]) -> None:
        self.answered_at = -inf
        """When a call was answered last, in the clock's seconds."""
        self._output_schema = version.output_schema
        self._batches = version.input_schema.batch
        self._backend = backend
        self._now = now

    async def answer(self, batch: list[WaitingRow], retries: "_Retries | None" = None) -> bool:
        """Answer each row, or give it its own error; return whether a model server answered for all of them."""
        try:
            tensor = await self._infer([waiting.row for waiting in batch], max([waiting.deadline for waiting in batch]))
            about = (self._output_schema, tensor, len(batch))
            if tensor.values.size <= INLINE_VALUES:
                predictions = predictions_of(*about, batch=self._batches)
            else:
                predictions = await asyncio.to_thread(predictions_of, *about, batch=self._batches)
        except BadAnswer as problem:
            await self._answer_halves(batch, retries or _Retries(), problem)
        except ServingError as problem:
            self.fail(batch, problem)
        else:
            now = self._now()
            for waiting, prediction in zip(batch, predictions, strict=True):
                waiting.end(prediction, now)
            return True
        return False

    async def _answer_halves(self, batch: list[WaitingRow], retries: "_Retries", problem: BadAnswer) -> None:
        """Find the row that spoilt a call by halving; a version that refuses everything is not asked for ever."""
        waiting = [one for one in batch if one.take is not None]
        if len(batch) == 1 or not retries.left:
            self.fail(waiting, problem)
            return
        retries.left -= 1
        middle = len(waiting) // 2
        for half in (waiting[:middle], waiting[middle:]):
            if half:
                await self.answer(half, retries)

    async def _infer(self, rows: Sequence[Row], deadline: float) -> Tensor:
        budget = deadline - self._now()
        if budget <= 0:
            raise DeadlineExceeded("queue")
        answer = await self._backend.infer(rows, budget)
        self.answered_at = self._now()
        return answer

    def fail(self, rows: Iterable[WaitingRow], problem: ServingError) -> None:
        """Give rows the same error."""
        now = self._now()
        for waiting in rows:
            waiting.end(problem, now)


class _Retries:
    """How often one batch may still be cut in half."""

    def __init__(self) -> None:
        self.left = MAX_HALVINGS
