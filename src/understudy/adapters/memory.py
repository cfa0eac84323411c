"""In-memory twins of the ports: real behaviour, nothing outside. The cache is also the proxy's own first level."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from understudy.core.prediction import PredictionRow
from understudy.core.tensors import Row, Tensor
from understudy.errors import BackendUnavailable, DeadlineExceeded, UnderstudyError

ENTRY_OVERHEAD_BYTES = 300
"""What an entry costs beside its key and value: the objects' headers, its tuple and its place in the dictionary.

Source:
    tracemalloc over 100,000 entries on CPython 3.11: 261 bytes; the rest is for a dictionary that just grew.
"""


class MemoryBackend:
    """A :class:`understudy.ports.ModelBackend` that is a function of the rows.

    ``delay_seconds``, ``error`` and ``is_ready`` may be set at any time; ``calls`` holds the rows of each call.
    """

    def __init__(
        self,
        function: Callable[[Sequence[Row]], Tensor],
        *,
        delay_seconds: float = 0.0,
        error: UnderstudyError | None = None,
    ) -> None:
        self.function = function
        self.delay_seconds = delay_seconds
        self.error = error
        self.is_ready = True
        self.calls: list[tuple[Row, ...]] = []
        self.in_flight = 0
        self._closed = False

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        """See :class:`understudy.ports.ModelBackend`."""
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
        """See :class:`understudy.ports.ModelBackend`."""
        return self.is_ready and not self._closed and self.delay_seconds < timeout_seconds

    async def close(self) -> None:
        """Refuse calls to come."""
        self._closed = True


class _Entry(NamedTuple):
    value: bytes
    expires_at: float


class MemoryCache:
    """A :class:`understudy.ports.PredictionCache` in this process: least recently used goes first, bounded in bytes."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._limit_bytes = limit_bytes
        self._now = now
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.size_bytes = 0
        """Bytes that the entries take, expired ones included until they are met."""

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: str) -> bytes | None:
        """See :class:`understudy.ports.PredictionCache`."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at <= self._now():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Store a value unless it alone is over the limit; the ones used longest ago make room."""
        self._drop(key)
        size = _size_of(key, value)
        if ttl_seconds <= 0 or size > self._limit_bytes:
            return
        while self.size_bytes + size > self._limit_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(value, self._now() + ttl_seconds)
        self.size_bytes += size

    async def close(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.size_bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= _size_of(key, entry.value)


def _size_of(key: str, value: bytes) -> int:
    return len(key) + len(value) + ENTRY_OVERHEAD_BYTES


class MemorySpool:
    """A :class:`understudy.ports.PredictionSpool` that keeps its rows in a list, ``limit`` of them at most."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self.rows: list[PredictionRow] = []
        self.dropped = 0
        self._limit = limit

    def append(self, row: PredictionRow) -> bool:
        """See :class:`understudy.ports.PredictionSpool`."""
        if len(self.rows) >= self._limit:
            self.dropped += 1
            return False
        self.rows.append(row)
        return True
