"""Keeps months of the log ahead of the clock, and shows that old ones go."""

from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.partition_keeper import PartitionKeeper
from understudy.ports.telemetry.telemetry import Telemetry


class PartitionsJob:
    """Makes partitions, and sets the gauges of partitions and of archiving."""

    def __init__(self, keeper: PartitionKeeper, telemetry: Telemetry) -> None:
        self._keeper = keeper
        self._telemetry = telemetry

    async def tick(self, _epoch: Epoch) -> None:
        """Make what is missing. Without a fencing token: making a month is idempotent."""
        seen = await self._keeper.ensure()
        self._telemetry.set("partitions_ahead", seen.months_ahead)
        self._telemetry.set("archive_months_awaiting_drop", seen.awaiting_drop)
        if seen.archived_at is not None:
            self._telemetry.set("archive_last_success_timestamp_seconds", seen.archived_at)
