"""The parts of a proxy process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.disk.spool import Spool
from understudy.adapters.local_cache import MemoryCache
from understudy.adapters.model_servers.connect import PROTOCOLS, replicas_of
from understudy.adapters.model_servers.hedged_call import Hedging
from understudy.adapters.postgres.features import PostgresFeatureStore
from understudy.adapters.postgres.outcomes import PostgresOutcomeStore
from understudy.adapters.postgres.policy import PostgresPolicySource
from understudy.adapters.postgres.predictions import PostgresPredictionStore
from understudy.adapters.randomness import RandomBytes
from understudy.adapters.redis.features import RedisFeatureStore
from understudy.adapters.telemetry.process_usage import ProcessUsage
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.backends import connector_of
from understudy.bootstrap.control import Control, control_of
from understudy.bootstrap.shared_cache import SharedCache
from understudy.bootstrap.tracing import FLUSH_SECONDS, open_tracer
from understudy.core.prediction_log.prediction_id import RANDOM_BITS
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.windows.builder import WindowBuilder
from understudy.ports.feature_store import FeatureStore
from understudy.ports.outcome_store import OutcomeStore
from understudy.ports.tracing import Tracer
from understudy.serving.background import run_forever
from understudy.serving.call import not_logged
from understudy.serving.callback_predictor import CallbackPredictor, open_callback_predictor
from understudy.serving.predict import Clocks, Limits, Predictor
from understudy.serving.prediction_log.durable_commit import DurableCommit
from understudy.serving.prediction_log.group_commit import GroupCommit
from understudy.serving.prediction_log.log_shipper import LogShipper
from understudy.serving.routing.policy_feed import PolicyFeed
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.upstream.champion_health import ChampionGauges, ChampionWatch
from understudy.settings import Settings

GAUGE_SECONDS = 1.0
"""Also what a worker that is killed loses of its counters at most."""


@dataclass(slots=True)
class Parts:
    """What a proxy process has open."""

    predictor: Predictor
    callback_predictor: CallbackPredictor
    feed: PolicyFeed
    backends: BackendPool
    champions: ChampionWatch
    shadows: ShadowPool
    telemetry: PrometheusTelemetry
    outcomes: OutcomeStore
    control: Control
    in_flight: Callable[[], int] = lambda: 0
    usage: ProcessUsage = field(default_factory=ProcessUsage)
    tracer: Tracer | None = None

    def publish(self) -> None:
        """Set the gauges of this worker, and share its counts with the metrics pages of the other workers."""
        self.telemetry.set("requests_in_flight", self.in_flight())
        self.telemetry.set("shadow_in_flight", len(self.shadows))
        self.telemetry.set("policy_age_seconds", self.feed.stale_seconds)
        self.usage.publish(self.telemetry)
        for caller in self.backends.opened():
            replicas = replicas_of(caller.backend)
            if replicas is not None:
                labels = (caller.version.model_name, caller.version.version)
                self.telemetry.set("replicas_ejected", replicas.ejected, *labels)
                self.telemetry.set("upstream_in_flight", replicas.in_flight, *labels)
        self.telemetry.share()


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Open a proxy's parts in this process and event loop; must run after any fork.

    Leaving it waits for shadow calls, signs off, ships what the spool holds and closes everything, each within its own
    bound; rows that could not be shipped stay on disk for the next process.
    """
    async with AsyncExitStack() as stack:
        telemetry = PrometheusTelemetry()
        stack.callback(telemetry.share)  # at the very end: draining counts, too
        refuses = settings.spool_full == "refuse"
        for outcome in ("written", "refused" if refuses else "dropped", "rejected"):
            # A counter that first appears with 1 has not increased, for Prometheus.
            telemetry.count("prediction_log_rows_total", outcome, by=0)
        for kind in ("full", "folder", "sync", "late", "delete"):
            telemetry.count("prediction_log_spool_failures_total", kind, by=0)
        tracer = open_tracer(settings, telemetry)
        if tracer is not None:
            stack.push_async_callback(tracer.close, FLUSH_SECONDS)
        spool = Spool(
            settings.state_dir / "spool",
            limit_bytes=settings.spool_limit_bytes,
            segment_bytes=settings.spool_segment_bytes,
            sync_seconds=settings.spool_sync_seconds,
            on_drop=partial(telemetry.count, "prediction_log_rows_total", "refused" if refuses else "dropped"),
            on_failure=partial(telemetry.count, "prediction_log_spool_failures_total"),
        )
        stack.callback(spool.close)
        log = _open_log(settings, spool, telemetry)
        stack.callback(log.flush)
        backends = BackendPool(partial(_make_caller, settings, telemetry))
        stack.push_async_callback(backends.close)
        shared_cache = SharedCache.open(settings, telemetry, stack)
        feed = await _open_feed(settings, telemetry, backends, shared_cache, stack)
        await _open_shipper(settings, spool, feed, telemetry, stack)
        features = _open_features(settings, stack)
        outcomes = PostgresOutcomeStore(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
        stack.push_async_callback(outcomes.close)
        shadows = ShadowPool(settings.shadow_limit, partial(telemetry.count, "shadow_dropped_total"))
        # After the shadow calls, when nothing is sent any more by any policy, and before rows are shipped, which may
        # take all the time that there is.
        stack.push_async_callback(feed.sign_off)
        # Last opened, so first closed: shadow calls still need everything above.
        stack.push_async_callback(shadows.drain, settings.shadow_timeout_seconds)

        inference = CachedInference(
            backends,
            memory_cache=MemoryCache(settings.memory_cache_bytes) if settings.memory_cache_bytes else None,
            shared_cache=shared_cache.cache if shared_cache is not None else None,
            telemetry=telemetry,
            now=time.monotonic,
        )
        fresh_bits = partial(RandomBytes().bits, RANDOM_BITS)
        predictor = Predictor(
            snapshot=lambda: feed.snapshot,
            inference=inference,
            features=features,
            log=log,
            shadows=shadows,
            telemetry=telemetry,
            limits=Limits(
                feature_timeout_seconds=settings.feature_timeout_seconds,
                challenger_budget_ratio=settings.challenger_budget_ratio,
                shadow_timeout_seconds=settings.shadow_timeout_seconds,
            ),
            clocks=Clocks(monotonic=time.monotonic, unix=time.time, random_bits=fresh_bits),
        )
        champions = ChampionWatch(backends, time.monotonic)
        callback_predictor = open_callback_predictor(predictor, inference, log, time.monotonic)
        parts = Parts(
            predictor,
            callback_predictor,
            feed,
            backends,
            champions,
            shadows,
            telemetry,
            outcomes,
            control_of(settings),
            tracer=tracer,
        )
        _run_until_closed("gauges", partial(_publish, parts), telemetry, stack)
        watched = ChampionGauges(backends, lambda: feed.snapshot, telemetry)
        _run_until_closed("champion_gauges", watched.run, telemetry, stack)
        yield parts


def _make_caller(settings: Settings, telemetry: PrometheusTelemetry, version: ModelVersion) -> BatchingCaller:
    count_hedge = partial(telemetry.count, "hedges_total", version.model_name, version.version)
    return BatchingCaller(
        version,
        connector_of(settings)(version, hedging=Hedging(settings.hedge_ratio, settings.backend_calls, count_hedge)),
        concurrency=settings.backend_concurrency,
        gap_seconds=settings.backend_gap_seconds,
        batch_rows=settings.backend_batch_rows,
        queue_rows=settings.backend_queue_rows,
        max_calls=settings.backend_calls,
        wait_seconds=settings.backend_wait_seconds,
        now=time.monotonic,
    )


def _open_log(settings: Settings, spool: Spool, telemetry: PrometheusTelemetry) -> GroupCommit:
    refused = not_logged if settings.spool_full == "refuse" else None
    if settings.spool_sync == "interval":
        return GroupCommit(spool, refused)
    on_late = partial(telemetry.count, "prediction_log_spool_failures_total", "late")
    return DurableCommit(spool, refused, wait_seconds=settings.spool_sync_seconds, on_late=on_late)


async def _open_shipper(
    settings: Settings, spool: Spool, feed: PolicyFeed, telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> None:
    store = PostgresPredictionStore(settings.logging_url, timeout_seconds=settings.database_timeout_seconds)
    stack.push_async_callback(store.close)
    shipper = LogShipper(
        spool,
        store,
        lambda: WindowBuilder(
            f"{settings.instance}:{os.getpid()}:{uuid4().hex[:12]}",
            open_rollouts=lambda: None if feed.snapshot is None else feed.snapshot.rollout_ids(),
        ),
        lambda rollout_id: None if feed.snapshot is None else feed.snapshot.slow_us_of(rollout_id),
        telemetry,
        batch_rows=settings.log_batch_rows,
        interval_seconds=settings.log_interval_seconds,
    )
    stack.push_async_callback(shipper.drain, settings.drain_seconds)
    _run_until_closed("log_shipper", shipper.run, telemetry, stack)


async def _open_feed(
    settings: Settings,
    telemetry: PrometheusTelemetry,
    backends: BackendPool,
    shared_cache: SharedCache | None,
    stack: AsyncExitStack,
) -> PolicyFeed:
    def act_on(snapshot: PolicySnapshot) -> None:
        backends.reconcile(snapshot)
        if shared_cache is not None:
            shared_cache.act_on(snapshot)

    source = PostgresPolicySource(
        settings.database_url.get_secret_value(),
        timeout_seconds=settings.database_timeout_seconds,
        heartbeat_seconds=settings.policy_heartbeat_seconds,
        reads_cache_secret=shared_cache is not None and shared_cache.needs_secret,
    )
    stack.push_async_callback(source.close)
    feed = PolicyFeed(
        source,
        JsonSnapshotFile(
            settings.state_dir / "policy.json", partial(telemetry.count, "policy_snapshot_failures_total")
        ),
        telemetry,
        instance=f"{settings.instance}:{os.getpid()}",
        poll_seconds=settings.policy_poll_seconds,
        now=time.monotonic,
        on_swap=act_on,
        in_flight=backends.in_flight,
        protocols=PROTOCOLS,
    )
    stack.push_async_callback(feed.stop)
    await feed.start()
    return feed


def _open_features(settings: Settings, stack: AsyncExitStack) -> FeatureStore | None:
    store: FeatureStore
    if settings.feature_redis_url is not None:
        store = RedisFeatureStore(
            settings.feature_redis_url.get_secret_value(), timeout_seconds=settings.feature_timeout_seconds
        )
    elif settings.feature_table is not None:
        store = PostgresFeatureStore(
            settings.database_url.get_secret_value(),
            settings.feature_table,
            timeout_seconds=settings.feature_timeout_seconds,
        )
    else:
        return None
    stack.push_async_callback(store.close)
    return store


def _run_until_closed(
    name: str, work: Callable[[], Awaitable[None]], telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> None:
    task = asyncio.get_running_loop().create_task(run_forever(name, work, telemetry))

    async def end() -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    stack.push_async_callback(end)


async def _publish(parts: Parts) -> None:
    while True:
        parts.publish()
        due_at = time.monotonic() + GAUGE_SECONDS
        await asyncio.sleep(GAUGE_SECONDS)
        parts.telemetry.observe("event_loop_lag_seconds", max(0.0, time.monotonic() - due_at))
