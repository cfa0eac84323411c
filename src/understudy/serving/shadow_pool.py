"""Shadow calls: after the answer, bounded, never awaited by a request."""

import asyncio
from collections.abc import Callable
from contextlib import suppress


class ShadowPool:
    """At most ``limit`` shadow calls in flight; further ones are dropped and counted by ``on_drop`` (a bulkhead)."""

    def __init__(self, limit: int, on_drop: Callable[[str], None]) -> None:
        self._limit = limit
        self._on_drop = on_drop
        self._in_flight = 0
        self._drained: asyncio.Event | None = None
        """While the end of the last call is waited for."""

    def __len__(self) -> int:
        return self._in_flight

    def enter(self, model_name: str) -> bool:
        """Count a call that begins, unless the pool is full; it must bound its own time, and end with :meth:`leave`."""
        if self._in_flight >= self._limit:
            self._on_drop(model_name)
            return False
        self._in_flight += 1
        return True

    def leave(self) -> None:
        """Count a call that has ended."""
        self._in_flight -= 1
        if self._drained is not None and not self._in_flight:
            self._drained.set()

    async def drain(self, timeout_seconds: float) -> None:
        """Wait for the calls in flight, at most ``timeout_seconds``."""
        if not self._in_flight:
            return
        self._drained = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._drained.wait()
