"""The shared prediction cache in Redis or Valkey: one MGET and one pipeline of SETs a turn of the event loop.

A cache that is down, slow or full only misses. A circuit breaker (``core.upstream.circuit_breaker``) opens after
failures in a row, so that a dead Redis costs one short time-out now and then rather than one for each request.

Redis is not believed: each value carries a MAC (``core.schema.cache_mac``), and one whose MAC is not ours is a miss.
Without a secret for it nothing is read or written.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from redis.exceptions import RedisError

from understudy.adapters.redis.connection import LOST, ValueTooLong, redis_client
from understudy.background.tasks import end_tasks
from understudy.core.schema.cache_mac import MAX_SEALED_BYTES, CacheMac, Rejected
from understudy.core.upstream.circuit_breaker import CLOSED

CONNECTIONS = 8
MAX_PENDING = 4_096
"""Most keys and most values that wait for the next turn (backpressure); further reads miss, writes are dropped."""
Waiting: TypeAlias = list[tuple[Sequence[str], asyncio.Future[list[bytes | None]]]]
"""Keys, and who waits for them."""


class RedisCache:
    """Implements ``ports.PredictionCache``.

    Args:
        url: ``redis://`` or ``rediss://``.
        timeout_seconds: Longest wait of one command, and for a connection.
        now: The monotonic clock, in seconds.
        on_error: Called once for each command that failed.
        on_rejected: Called with the reason for each value that was found and is not used.
        unix: The wall clock, in seconds since 1970, by which values expire.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        now: Callable[[], float],
        on_error: Callable[[], None],
        on_rejected: Callable[[Rejected], None],
        unix: Callable[[], float] = time.time,
    ) -> None:
        self._redis = redis_client(
            url,
            connections=CONNECTIONS,
            turn_seconds=timeout_seconds,
            answer_seconds=timeout_seconds,
            max_value_bytes=MAX_SEALED_BYTES,
        )
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._on_error = on_error
        self._on_rejected = on_rejected
        self._unix = unix
        self._secret: bytes | None = None
        self._mac: CacheMac | None = None
        self._waiting: Waiting = []
        self._waiting_keys = 0
        self._to_write: dict[str, tuple[bytes, int]] = {}
        self._flush_is_due = False
        self._breaker = CLOSED
        self._tasks: dict[asyncio.Task[None], Waiting] = {}
        """Reads and writes under way, and who waits for each."""

    def use_secret(self, secret: bytes | None) -> None:
        """Authenticate values by this secret from now on; ``None`` turns the cache off, as it is at first."""
        if secret != self._secret:
            self._secret = secret
            self._mac = None if secret is None else CacheMac(secret)

    async def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the values that are there, within twice the time-out (a connection, then the command)."""
        now, room = self._now(), MAX_PENDING - self._waiting_keys
        if self._mac is None or self._breaker.is_open(now) or not room:
            return [None] * len(keys)
        self._breaker = self._breaker.after_asking(now)
        asked = keys[:room]
        answer: asyncio.Future[list[bytes | None]] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        self._waiting_keys += len(asked)
        self._schedule()
        return await answer + [None] * (len(keys) - len(asked))

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Queue the value for the next turn; returns at once."""
        has_room = self._mac is not None and len(self._to_write) < MAX_PENDING
        if has_room and not self._breaker.is_open(self._now()):
            self._to_write[key] = (value, ttl_seconds)
            self._schedule()

    async def close(self) -> None:
        """Close the pool: values that wait to be written are dropped, and who waits for one, or will, has a miss."""
        self._mac = None
        tasks = dict(self._tasks)
        await end_tasks(tasks)
        for waiting in tasks.values():  # of a read that was cancelled before its first step
            _settle(waiting, {})
        await self._redis.aclose(close_connection_pool=True)

    def _schedule(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        waiting, self._waiting, self._waiting_keys = self._waiting, [], 0
        writes, self._to_write = self._to_write, {}
        mac = self._mac
        if mac is None:  # it was taken away in this turn
            _settle(waiting, {})
            return
        if waiting:
            self._start(self._read(waiting, mac), waiting)
        if writes:
            self._start(self._write(writes, mac), [])

    def _start(self, work: Coroutine[Any, Any, None], waiting: Waiting) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = waiting
        task.add_done_callback(self._tasks.pop)

    async def _read(self, waiting: Waiting, mac: CacheMac) -> None:
        found: dict[str, bytes] = {}
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                keys = list(dict.fromkeys(chain.from_iterable(some for some, _ in waiting)))
                sealed: Any = await self._redis.mget([(key + mac.suffix).encode() for key in keys])
            found = self._opened(keys, sealed, mac)
            self._breaker = self._breaker.after_success()
        except ValueTooLong:  # it stands at a key of ours, and another connection has to be opened
            self._on_rejected(Rejected.INVALID_MAC)
            self._failed()
        except (*LOST, TypeError, ValueError):  # the last two: an answer of another shape, which no Redis gives to MGET
            self._failed()
        finally:
            _settle(waiting, found)

    def _opened(self, keys: list[str], sealed: list[bytes | None], mac: CacheMac) -> dict[str, bytes]:
        """Return the values whose MAC is ours.

        Raises:
            TypeError, ValueError: The server answered something else than a value or nothing for each key.
        """
        now, values = self._unix(), {}
        for key, one in zip(keys, sealed, strict=True):
            if one is None:
                continue
            value = mac.open(key, one, now)
            if isinstance(value, Rejected):
                self._on_rejected(value)
            else:
                values[key] = value
        return values

    async def _write(self, writes: dict[str, tuple[bytes, int]], mac: CacheMac) -> None:
        now = self._unix()
        try:
            async with asyncio.timeout(4 * self._timeout_seconds), self._redis.pipeline(transaction=False) as pipe:
                for key, (value, ttl_seconds) in writes.items():
                    pipe.set(key + mac.suffix, mac.seal(key, value, now + ttl_seconds), ex=ttl_seconds)
                replies = await pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, RedisError):  # such as OOM: the server is available, its memory is full
                    self._on_error()
        except LOST:
            self._failed()

    def _failed(self) -> None:
        self._on_error()
        self._breaker = self._breaker.after_failure(self._now())


def _settle(waiting: Waiting, found: Mapping[str, bytes]) -> None:
    for keys, answer in waiting:
        if not answer.done():
            answer.set_result([found.get(key) for key in keys])
