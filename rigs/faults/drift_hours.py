"""A monitor for which an hour passes when a row says so: its own jobs, over a store that tells another time."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
import orjson
from traffic.drift import numeric_baseline
from traffic.logged import LoggedTraffic, StoreAsOf, scored_rows

from rigs.faults.world import World
from understudy.adapters.http.alerts import WebhookChannel
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.monitoring.outbox import PostgresAlertOutbox
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.core.drift.baseline import Baselines, baselines_to_json
from understudy.core.drift.hours import HOUR_SECONDS, SETTLE_SECONDS
from understudy.monitoring.alert_delivery import deliver_due
from understudy.monitoring.drift_job import DriftJob
from understudy.monitoring.worker import Job, MonitorWorker
from understudy.ports.monitoring.lease import Epoch

MEAN, DEVIATION = 0.4, 0.1
"""Of the scores in the baseline."""
ROWS_PER_HOUR = 400
PATIENCE_SECONDS = 30.0
"""Longest time that the monitor has to judge an hour."""
_TICK_SECONDS = 0.05
_BACK_HOURS = 48
"""How long ago the first hour was: windows of the future are in no partition, and those of long ago are forgotten."""
_JUDGED = """
    SELECT extract(epoch FROM max(computed_at))::float8 AS at FROM PredictionMetric WHERE metric_name = 'drift_state'
"""


@dataclass
class HourlyMonitor:
    """What a row has of the monitor: hours pass by :meth:`hour`."""

    world: World
    store: StoreAsOf
    traffic: LoggedTraffic
    version_id: int
    at: float
    """The end of the last hour, in seconds since the epoch."""
    random: np.random.Generator

    async def hour(self, shift: float) -> None:
        """Let the version answer for an hour, its scores shifted by so many deviations, and wait for the judgement.

        Raises:
            TimeoutError: The monitor did not judge the hour.
        """
        scores = MEAN + DEVIATION * (shift + self.random.normal(size=ROWS_PER_HOUR))
        await self.traffic.ship(scored_rows(scores, self.at, self.version_id))
        self.at += HOUR_SECONDS
        self.store.now = self.at + SETTLE_SECONDS
        async with asyncio.timeout(PATIENCE_SECONDS):
            while ((await self.world.sql(_JUDGED))[0]["at"] or 0.0) < self.at:
                await asyncio.sleep(_TICK_SECONDS)


@asynccontextmanager
async def hourly_monitor(world: World, webhook_url: str) -> AsyncIterator[HourlyMonitor]:
    """Lend a monitor that leads, judges the drift of the world's champion, and tells the receiver of it."""
    random = np.random.default_rng(11)
    baseline = numeric_baseline(MEAN + DEVIATION * random.normal(size=20_000), threshold=0.5)
    metrics = {"baseline": baselines_to_json(Baselines(baseline, {}))}
    await world.champion("a")
    version_id = world.versions["a"]
    await world.sql(
        "UPDATE ModelVersion SET metrics = $1::jsonb WHERE id = $2", orjson.dumps(metrics).decode(), version_id
    )
    store, traffic = StoreAsOf(world.url, timeout_seconds=10), LoggedTraffic(world.url)
    store.now = time.time() // HOUR_SECONDS * HOUR_SECONDS - _BACK_HOURS * HOUR_SECONDS
    monitor = HourlyMonitor(world, store, traffic, version_id, store.now, random)
    telemetry, lease = MemoryTelemetry(), PostgresLease(world.url)
    outbox = PostgresAlertOutbox(world.url, [WebhookChannel.name], timeout_seconds=10)
    drift = DriftJob(store, PostgresWindowLog(world.url, timeout_seconds=10), telemetry, environment="faults")

    async def deliver(_epoch: Epoch) -> None:
        await deliver_due(outbox, [WebhookChannel(webhook_url)], budget_seconds=2.0, runbooks_url=None)

    worker = MonitorWorker(
        lease,
        [Job("drift", _TICK_SECONDS, PATIENCE_SECONDS, drift.tick), Job("alerts", 0.5, PATIENCE_SECONDS, deliver)],
        telemetry,
        holder=f"faults:{os.getpid()}",
        finish_seconds=5.0,
        now=time.monotonic,
        unix=time.time,
    )
    working = asyncio.create_task(worker.run())
    try:
        yield monitor
    finally:
        worker.stop()
        await working
        await traffic.close()
        await outbox.close()
        await lease.close()
