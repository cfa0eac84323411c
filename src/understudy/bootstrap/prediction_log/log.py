"""The prediction log of a proxy process: its spool on the disk, the commit to it, and the shipping to Postgres."""

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from uuid import uuid4

from understudy.adapters.disk.lake_alone import LakeAloneMarks
from understudy.adapters.disk.spool import Spool
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.background.tasks import run_until_closed
from understudy.bootstrap.prediction_log.lake import open_lake_shipper
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.caller_deadlines import ALONE, Share
from understudy.errors import LakeUnavailable
from understudy.serving.call import refuse_unlogged
from understudy.serving.prediction_log.durable_commit import DurableCommit
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.routing.policy_feed import PolicyFeed
from understudy.settings import Settings
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.log_shipper import LogShipper

_WINDOWS_ALONE_ROWS = 10_000
"""Of a batch of which Postgres gets the windows, which cost as much for few rows as for many."""


def open_spool(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> Spool:
    """Return this process's spool, which ``stack`` closes; its counters begin at 0."""
    lost = "refused" if settings.spool_full == "refuse" else "dropped"
    for outcome in ("written", lost, "rejected"):
        # A counter that first appears with 1 has not increased, for Prometheus.
        telemetry.count("prediction_log_rows_total", outcome, by=0)
    for kind in ("full", "folder", "sync", "late", "delete"):
        telemetry.count("prediction_log_spool_failures_total", kind, by=0)
    spool = Spool(
        settings.spool_dir,
        limit_bytes=settings.spool_limit_bytes,
        segment_bytes=settings.spool_segment_bytes,
        sync_seconds=settings.spool_sync_seconds,
        on_drop=partial(telemetry.count, "prediction_log_rows_total", lost),
        on_failure=partial(telemetry.count, "prediction_log_spool_failures_total"),
    )
    stack.callback(spool.close)
    return spool


def open_log(settings: Settings, spool: Spool, telemetry: PrometheusTelemetry) -> GroupCommit:
    """Return what writes rows into the spool, and waits for the disk where the settings say so."""
    refuse = refuse_unlogged if settings.spool_full == "refuse" else None
    if settings.spool_sync == "interval":
        return GroupCommit(spool, refuse)
    on_late = partial(telemetry.count, "prediction_log_spool_failures_total", "late")
    return DurableCommit(spool, refuse, wait_seconds=settings.spool_sync_seconds, on_late=on_late)


def open_shipper(
    settings: Settings, spool: Spool, feed: PolicyFeed, telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> None:
    """Ship what the spool holds until ``stack`` closes, which first waits for the rest within its bound."""
    marks = LakeAloneMarks(settings.state_dir)
    require_shipped(settings, marks)
    shelf, lake = open_lake_shipper(settings, spool, telemetry) if settings.has_lake else (spool, None)
    if settings.is_lake_alone:
        marks.mark(spool.own.folder.name)
    store = PostgresPredictionStore(
        settings.logging_url,
        timeout_seconds=settings.database_timeout_seconds,
        is_sample_alone=settings.is_lake_alone,
    )
    stack.push_async_callback(store.close)
    shipper = LogShipper(
        shelf,
        store,
        lambda: WindowBuilder(
            f"{settings.instance}:{os.getpid()}:{uuid4().hex[:12]}",
            share_of=partial(_share_of, feed, Share(settings.challenger_budget_ratio)),
            open_rollouts=lambda: None if feed.snapshot is None else feed.snapshot.rollout_ids(),
        ),
        lambda rollout_id: None if feed.snapshot is None else feed.snapshot.slow_us_of(rollout_id),
        telemetry,
        batch_rows=max(settings.log_batch_rows, _WINDOWS_ALONE_ROWS if settings.is_lake_alone else 0),
        interval_seconds=settings.log_interval_seconds,
    )
    shippers: list[tuple[str, LogShipper | LakeShipper]] = [("log_shipper", shipper)]
    if lake is not None:
        shippers.append(("lake_shipper", lake))

    async def drain() -> None:
        # Both at once: the kill time-out of a process has room for one phase.
        drains = (one.drain(settings.drain_seconds) for _, one in shippers)
        for problem in await asyncio.gather(*drains, return_exceptions=True):
            if problem is not None:
                raise problem
        if lake is not None and lake.is_all_shipped:
            marks.unmark(spool.own.folder.name)

    stack.push_async_callback(drain)
    for name, one in shippers:
        run_until_closed(name, one.run, telemetry, stack)


def require_shipped(settings: Settings, marks: LakeAloneMarks) -> None:
    """Refuse to ship to Postgres alone what may be meant for the lake alone: those rows would be in neither.

    Raises:
        LakeUnavailable: A spool was filled while rows went to the lake alone, and has not been emptied.
    """
    left = [] if settings.has_lake else marks.left()
    if left:
        raise LakeUnavailable(
            f"{len(left)} spools in {settings.state_dir} may have rows for the lake alone: a process with "
            "UNDERSTUDY_LOG=lake did not ship all of them before it ended",
            hint="Start it with UNDERSTUDY_LOG=postgres+lake, and stop it once prediction_log_lake_spool_bytes is 0.",
        )


def _share_of(feed: PolicyFeed, challengers: Share, rollout_id: int, generation: int) -> Share:
    is_alone = feed.snapshot is not None and feed.snapshot.has_champion_alone(rollout_id, generation)
    return ALONE if is_alone else challengers
