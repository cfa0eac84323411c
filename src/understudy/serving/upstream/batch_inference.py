"""One call for several rows: each row gets its own prediction or its own error."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import repeat
from math import inf

from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.outputs import Prediction, predictions_of
from understudy.core.schema.row_output import row_outputs_of
from understudy.core.schema.tensors import Tensor
from understudy.errors import BadAnswer, DeadlineExceeded, ServingError
from understudy.ports.upstream.model_backend import ModelBackend
from understudy.serving.upstream.row_deadlines import WaitingRow, end_rows

PARTS = 8
"""A call that was refused is asked again in so many parts, each with an eighth of its rows: of 256 rows the one that
spoils the call is alone after three such rounds."""
MAX_PART_CALLS = 16
"""Calls for such parts that a version is asked side by side, those of all its batches together."""
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
        self._part_calls = asyncio.Semaphore(MAX_PART_CALLS)

    async def answer(self, batch: list[WaitingRow]) -> bool:
        """Answer each row, or give it its own error; return whether a model server answered for all of them."""
        problem = await self._ask(batch)
        if isinstance(problem, BadAnswer):
            await self._ask_in_parts(batch, problem)
        return problem is None

    async def _ask(self, batch: list[WaitingRow]) -> ServingError | None:
        """Answer rows by one call, or return its error, which the rows have then; a refusal may be one row's alone."""
        try:
            budget = max([waiting.deadline for waiting in batch]) - self._now()
            if budget <= 0:
                raise DeadlineExceeded("queue")
            tensor = await self._backend.infer([waiting.row for waiting in batch], budget)
            self.answered_at = self._now()
            if tensor.values.size + sum(one.values.size for one in tensor.beside) <= INLINE_VALUES:
                predictions = self._predictions_of(batch, tensor)
            else:
                predictions = await asyncio.to_thread(self._predictions_of, batch, tensor)
        except BadAnswer as problem:
            return problem
        except ServingError as problem:
            self.fail(batch, problem)
            return problem
        end_rows(batch, predictions, self._now())
        return None

    def _predictions_of(self, batch: list[WaitingRow], tensor: Tensor) -> list[Prediction | BadAnswer]:
        """Return the prediction of each row, with its output where it keeps that; raises as :func:`predictions_of`."""
        found = predictions_of(self._output_schema, tensor, len(batch), batch=self._batches)
        if not [waiting for waiting in batch if waiting.keeps_output]:  # an iterator would cost each row more
            return found
        places = [
            place
            for place, (waiting, prediction) in enumerate(zip(batch, found, strict=True))
            if waiting.keeps_output and isinstance(prediction, Prediction)
        ]
        for place, output in zip(places, row_outputs_of(tensor, places, batch=self._batches), strict=True):
            prediction = found[place]
            assert isinstance(prediction, Prediction)
            if isinstance(output, BadAnswer):
                found[place] = output
            else:
                found[place] = Prediction(prediction.json, prediction.score, output)
        return found

    async def _ask_in_parts(self, refused: list[WaitingRow], problem: BadAnswer) -> None:
        """Ask again in parts, side by side, until each row that spoils a call is alone: only such a row fails.

        Each further call has fewer rows than the one it follows, so a batch of n rows costs fewer than 2 n calls,
        however many of them are spoilt.
        """
        if len(refused) == 1:
            self.fail(refused, problem)
            return
        size = -(-len(refused) // PARTS)
        async with asyncio.TaskGroup() as parts:
            for start in range(0, len(refused), size):
                parts.create_task(self._ask_part(refused[start : start + size]))

    async def _ask_part(self, part: list[WaitingRow]) -> None:
        async with self._part_calls:
            waiting = [one for one in part if one.take is not None]  # a deadline may have come before the part's turn
            problem = await self._ask(waiting) if waiting else None
        if isinstance(problem, BadAnswer):
            await self._ask_in_parts(waiting, problem)

    def fail(self, rows: Iterable[WaitingRow], problem: ServingError) -> None:
        """Give rows the same error, as a value: a caller that goes in this turn leaves it with its row."""
        end_rows(rows, repeat(problem.as_value()), self._now())
