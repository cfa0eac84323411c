"""Where answers are kept for callers that ask the same."""

from typing import Protocol


class PredictionCache(Protocol):
    """Answers by ``infer:{version_id}:{sha256}``, those with the server's own output by ``infer:output:…``.

    Never raises: a cache that is down only misses.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the stored value, or ``None``; within the adapter's own short time-out."""

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Store a value, or let it go."""

    async def close(self) -> None:
        """Close the connections."""


class LocalCache(PredictionCache, Protocol):
    """A cache in this process, which can be asked without a wait."""

    def peek(self, key: str) -> bytes | None:
        """Return the stored value, or ``None``."""
