"""Where answers are kept for callers that ask the same."""

from collections.abc import Sequence
from typing import Protocol

from understudy.core.schema.outputs import Prediction


class PredictionCache(Protocol):
    """Answers by ``infer:{version_id}:{sha256}``, those with the server's own output by ``infer:output:…``.

    Never raises: a cache that is down only misses.
    """

    async def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Return the stored value of each key, or ``None``; within the adapter's own short time-out."""

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Store a value, or let it go."""

    async def close(self) -> None:
        """Close the connections."""


class LocalCache(Protocol):
    """Predictions in this process: only it writes them, so they are kept as they are answered, and asked for at once.

    The keys name all that a prediction was made by and from.
    """

    def peek(self, key: str) -> Prediction | None:
        """Return the prediction that is kept, or ``None``."""

    def keep(self, key: str, value: Prediction, ttl_seconds: int) -> None:
        """Keep a prediction, or let it go."""
