"""The shared prediction cache in Redis or Valkey: one MGET and one pipeline of SETs a turn of the event loop.

A cache that is down, slow or full only misses. A circuit breaker (``core.upstream.circuit_breaker``) opens after
failures in a row, so that a dead Redis costs one short time-out now and then rather than one for each request.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from redis.exceptions import RedisError

from understudy.adapters.redis.connection import LOST, redis_client
from understudy.core.upstream.circuit_breaker import CLOSED

CONNECTIONS = 8
MAX_PENDING = 4_096
"""Most keys and most values that wait for the next turn (backpressure); further reads miss, writes are dropped."""


class RedisCache:
    """Implements ``ports.PredictionCache``.

    Args:
        url: ``redis://`` or ``rediss://``.
        timeout_seconds: Longest wait of one command, and for a connection.
        now: The monotonic clock, in seconds.
        on_error: Called once for each command that failed.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float, now: Callable[[], float], on_error: Callable[[], None]
    ) -> None:
        self._redis = redis_client(
            url, connections=CONNECTIONS, turn_seconds=timeout_seconds, answer_seconds=timeout_seconds
        )
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._on_error = on_error
        self._waiting: dict[str, asyncio.Future[bytes | None]] = {}
        self._to_write: dict[str, tuple[bytes, int]] = {}
        self._flush_is_due = False
        self._breaker = CLOSED
        self._tasks: set[asyncio.Task[None]] = set()

    async def get(self, key: str) -> bytes | None:
        """Return the value, or ``None`` within twice the time-out (a connection, then the command)."""
        if self._breaker.is_open(self._now()) or len(self._waiting) >= MAX_PENDING:
            return None
        self._breaker = self._breaker.after_asking(self._now())
        answer = self._waiting.get(key)
        if answer is None:
            answer = asyncio.get_running_loop().create_future()
            self._waiting[key] = answer
            self._schedule()
        # Shielded: a cancelled caller must not cancel the read of the others, nor leave a reply unread.
        return await asyncio.shield(answer)

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Queue the value for the next turn; returns at once."""
        if not self._breaker.is_open(self._now()) and len(self._to_write) < MAX_PENDING:
            self._to_write[key] = (value, ttl_seconds)
            self._schedule()

    async def close(self) -> None:
        """Close the pool; values that wait to be written are dropped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._redis.aclose(close_connection_pool=True)

    def _schedule(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._start(self._read(waiting))
        if self._to_write:
            writes, self._to_write = self._to_write, {}
            self._start(self._write(writes))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, waiting: dict[str, asyncio.Future[bytes | None]]) -> None:
        values: list[bytes | None] = [None] * len(waiting)
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                values = await self._redis.mget(list(waiting))  # type: ignore[assignment]  # bytes: nothing is decoded
            self._breaker = self._breaker.after_success()
        except LOST:
            self._failed()
        finally:
            for answer, value in zip(waiting.values(), values, strict=True):
                if not answer.done():
                    answer.set_result(value)

    async def _write(self, writes: dict[str, tuple[bytes, int]]) -> None:
        try:
            async with asyncio.timeout(4 * self._timeout_seconds), self._redis.pipeline(transaction=False) as pipe:
                for key, (value, ttl_seconds) in writes.items():
                    pipe.set(key, value, ex=ttl_seconds)
                replies = await pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, RedisError):  # such as OOM: the server is available, its memory is full
                    self._on_error()
        except LOST:
            self._failed()

    def _failed(self) -> None:
        self._on_error()
        self._breaker = self._breaker.after_failure(self._now())
