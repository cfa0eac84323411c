"""Reads of a feature store: each with a deadline, behind a circuit breaker."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from understudy.background.tasks import end_tasks
from understudy.core.upstream.circuit_breaker import CLOSED
from understudy.errors import FeaturesUnavailable

PATIENCE_SECONDS = 2.0
"""How long a read may go on after its caller gave up, mostly to open a connection."""

_Answer = TypeVar("_Answer")


class FeatureReads:
    """Runs each read of a store as a task of its own, behind a circuit breaker.

    A caller that gives up cancels nothing: where connecting takes longer than any caller waits, the connection is
    opened all the same, and the next caller uses it.

    Args:
        late_seconds: When a read without an answer counts as failed. Not the caller's own timeout, or one short timeout
            could open the breaker for all callers.
        failures: What the vendor raises when the store is unavailable.
        refusals: What it raises when an available store refuses one read; checked first.
    """

    def __init__(
        self,
        late_seconds: float,
        *,
        failures: tuple[type[Exception], ...],
        refusals: tuple[type[Exception], ...],
    ) -> None:
        self._late_seconds = late_seconds
        self._failures = failures
        self._refusals = refusals
        self._breaker = CLOSED
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, read: Callable[[], Coroutine[Any, Any, _Answer]], timeout_seconds: float) -> _Answer:
        """Return what ``read`` returns, if it does so within ``timeout_seconds``.

        Raises:
            FeaturesUnavailable: It does not, it failed, or the circuit breaker is open.
        """
        loop = asyncio.get_running_loop()
        if self._breaker.is_open(loop.time()):
            raise FeaturesUnavailable("the feature store failed repeatedly; its circuit breaker is open")
        self._breaker = self._breaker.after_asking(loop.time())
        task = loop.create_task(self._judged(read))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait((task,), timeout=timeout_seconds)
        if not task.done():
            raise FeaturesUnavailable(f"the feature store did not answer within {timeout_seconds * 1000:.0f} ms")
        outcome = task.result()
        if isinstance(outcome, FeaturesUnavailable):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Cancel the reads that still run."""
        await end_tasks(self._tasks)

    async def _judged(self, read: Callable[[], Coroutine[Any, Any, _Answer]]) -> _Answer | FeaturesUnavailable:
        """Return the answer, or the error: not raised, since the caller may have given up."""
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._late_seconds, self._failed)
        outcome: _Answer | FeaturesUnavailable
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                outcome = await read()
        except self._refusals as problem:
            outcome = _failure(problem)
        except self._failures as problem:
            if loop.time() < late.when():
                self._failed()
            return _failure(problem)
        finally:
            late.cancel()
        now = loop.time()
        self._breaker = self._breaker.after_success() if now < late.when() else self._breaker.after_late_answer(now)
        return outcome

    def _failed(self) -> None:
        self._breaker = self._breaker.after_failure(asyncio.get_running_loop().time())


def _failure(problem: Exception) -> FeaturesUnavailable:
    return FeaturesUnavailable(f"the feature store failed: {type(problem).__name__}")
