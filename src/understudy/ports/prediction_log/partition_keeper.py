"""The months that PredictionLog has, and that archiving goes on."""

from typing import NamedTuple, Protocol


class PartitionsSeen(NamedTuple):
    """How the log's months are."""

    months_ahead: int
    """Partitions after this month's, without a gap; -1 when this month has none."""
    archived_at: float | None
    """When archiving last came to its end, in seconds since the epoch; ``None``: never."""
    awaiting_drop: int
    """Archived months whose table is still there, and will be dropped."""


class PartitionKeeper(Protocol):
    """Makes partitions. Raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def ensure(self) -> PartitionsSeen:
        """Make the months that are missing, up to three ahead, and return how they are then."""
