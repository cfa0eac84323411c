"""The in-memory twin of ``ports.ModelBackend``."""

import asyncio
from collections.abc import Callable, Sequence

from understudy.core.schema.tensors import Block, Row, Tensor
from understudy.errors import BackendUnavailable, BadAnswer, DeadlineExceeded, UnderstudyError


class MemoryBackend:
    """A :class:`understudy.ports.upstream.model_backend.ModelBackend` that is a function of the rows.

    ``delay_seconds``, ``error``, ``is_ready`` and ``is_connected`` may be set at any time; ``calls`` holds the rows of
    each call.
    """

    def __init__(
        self,
        function: Callable[[Sequence[Row]], Tensor],
        *,
        delay_seconds: float = 0.0,
        error: UnderstudyError | None = None,
        rows_per_call: int | None = None,
    ) -> None:
        self.function = function
        self.rows_per_call = rows_per_call
        self.delay_seconds = delay_seconds
        self.error = error
        self.is_ready = True
        self.is_connected = True
        self.calls: list[tuple[Row, ...]] = []
        self.in_flight = 0
        self._closed = False

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        if self.rows_per_call is not None and len(rows) > self.rows_per_call:
            msg = f"{len(rows)} rows; one call takes {self.rows_per_call}"
            raise ValueError(msg)
        return await self._answer(rows, timeout_seconds)

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        """See :class:`understudy.ports.upstream.model_backend.ModelBackend`; the function gets the rows of the block.

        Each tensor's first dimension must be the rows', and its elements must not be strings.
        """
        if self.rows_per_call is not None:
            raise BadAnswer(f"one call takes {self.rows_per_call} rows, and no block of them")
        count = block.shapes[0][0]
        parts = [_cut(content, count) for content in block.contents]
        return await self._answer(tuple(zip(*parts, strict=True)), timeout_seconds)

    async def _answer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        if self._closed:
            raise BackendUnavailable("the connections to the model version are closed")
        self.calls.append(tuple(rows))
        self.in_flight += 1
        try:
            await asyncio.sleep(min(self.delay_seconds, max(timeout_seconds, 0)))
        finally:
            self.in_flight -= 1
        if self.delay_seconds >= timeout_seconds:
            raise DeadlineExceeded("upstream", timeout_seconds)
        if self.error is not None:
            raise self.error
        return self.function(rows)

    async def ready(self, timeout_seconds: float) -> bool:
        return self.is_ready and not self._closed and self.delay_seconds < timeout_seconds

    async def close(self) -> None:
        """Refuse further calls."""
        self._closed = True


def _cut(content: bytes, count: int) -> list[bytes]:
    size = len(content) // count
    return [content[start : start + size] for start in range(0, len(content), size)]
