"""Caches in the process: predictions, the first level of the prediction cache; and the twin of the one in Redis."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from understudy.core.schema.outputs import Prediction

ENTRY_OVERHEAD_BYTES = 300
"""Memory of an entry beside its key and value: object headers, its tuple and its slot in the dictionary.

Source:
    tracemalloc over 100,000 entries on CPython 3.11: 261 bytes; the rest allows for a dictionary that just grew.
"""
PREDICTION_OVERHEAD_BYTES = 80
"""Memory of a prediction beside its JSON and its output (measured in the same way: 64 bytes)."""
OUTPUT_OVERHEAD_BYTES = 300
"""Memory of an output beside its name and its elements, with its shape (measured: 261 bytes)."""

Kept = TypeVar("Kept")


class _Entry(NamedTuple, Generic[Kept]):
    value: Kept
    expires_at: float


class LeastRecentlyUsed(Generic[Kept]):
    """Keeps what was used last, bounded in bytes.

    Args:
        limit_bytes: Of all entries together.
        bytes_of: Returns the bytes of what is kept.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, limit_bytes: int, bytes_of: Callable[[Kept], int], now: Callable[[], float]) -> None:
        self._limit_bytes = limit_bytes
        self._bytes_of = bytes_of
        self._now = now
        self._entries: OrderedDict[str, _Entry[Kept]] = OrderedDict()
        self.size_bytes = 0
        """Bytes of the entries, expired ones included until they are read or evicted."""

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: str) -> Kept | None:
        """Return what is kept, or ``None``."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at <= self._now():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def keep(self, key: str, value: Kept, ttl_seconds: int) -> None:
        """Keep a value unless it alone is over the limit; the least recently used ones are evicted."""
        self._drop(key)
        size = self._size_of(key, value)
        if ttl_seconds <= 0 or size > self._limit_bytes:
            return
        while self.size_bytes + size > self._limit_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(value, self._now() + ttl_seconds)
        self.size_bytes += size

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self.size_bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= self._size_of(key, entry.value)

    def _size_of(self, key: str, value: Kept) -> int:
        return len(key) + self._bytes_of(value) + ENTRY_OVERHEAD_BYTES


class PredictionMemory(LeastRecentlyUsed[Prediction]):
    """A :class:`understudy.ports.upstream.prediction_cache.LocalCache`: predictions as they are answered."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limit_bytes, _prediction_bytes, now)

    def keep(self, key: str, value: Prediction, ttl_seconds: int) -> None:
        """Keep a copy: JSON as orjson writes it holds the whole buffer that it was written to, 4 KiB for a label."""
        super().keep(key, value.but(json=bytes(memoryview(value.json))), ttl_seconds)


class MemoryCache(LeastRecentlyUsed[bytes]):
    """A :class:`understudy.ports.upstream.prediction_cache.PredictionCache` in this process."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limit_bytes, len, now)

    async def get_all(self, keys: Iterable[str]) -> list[bytes | None]:
        return [self.peek(key) for key in keys]

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        self.keep(key, value, ttl_seconds)

    async def close(self) -> None:
        """Drop all entries."""
        self.clear()


def _prediction_bytes(prediction: Prediction) -> int:
    output = prediction.output
    own = len(prediction.json) + PREDICTION_OVERHEAD_BYTES
    if output is None:
        return own
    return own + sum(len(one.name) + len(one.content) + OUTPUT_OVERHEAD_BYTES for one in (output, *output.beside))
