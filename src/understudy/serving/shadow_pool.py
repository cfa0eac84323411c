"""Shadow calls: after the answer, bounded, never awaited by a request."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class ShadowPool:
    """At most ``limit`` shadow calls in flight; further ones are dropped and counted by ``on_drop`` (a bulkhead)."""

    def __init__(self, limit: int, on_drop: Callable[[str], None]) -> None:
        self._limit = limit
        self._on_drop = on_drop
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def offer(self, model_name: str, call: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Start ``call`` unless the pool is full; it must bound its own time."""
        if len(self._tasks) >= self._limit:
            self._on_drop(model_name)
            return False
        task = asyncio.get_running_loop().create_task(call())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def drain(self, timeout_seconds: float) -> None:
        """Wait for the calls in flight, then cancel what is left."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(tuple(self._tasks), timeout=timeout_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
