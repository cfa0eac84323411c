"""The parts of a proxy process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.local_cache import PredictionMemory
from understudy.adapters.model_servers.addresses import Discovery
from understudy.adapters.model_servers.connect import PROTOCOLS, replicas_of
from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.adapters.model_servers.system_resolver import SystemResolver
from understudy.adapters.postgres.experiments.outcomes import PostgresOutcomeStore
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.warm_ups import PostgresWarmUpInbox
from understudy.adapters.telemetry.process_usage import ProcessUsage
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.background.tasks import run_until_closed
from understudy.bootstrap.control import Control, control_of
from understudy.bootstrap.prediction_log.log import open_log, open_shipper, open_spool
from understudy.bootstrap.tokens import open_tokens
from understudy.bootstrap.tracing import FLUSH_SECONDS, open_tracer
from understudy.bootstrap.upstream.backends import connector_of
from understudy.bootstrap.upstream.features import open_features
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.ports.experiments.outcome_store import OutcomeStore
from understudy.ports.registry.tokens import TokenReader
from understudy.ports.telemetry.tracing import Tracer
from understudy.rollout.warm_up.warm_up_answerer import WarmUpAnswerer
from understudy.serving.routing.policy_feed import PolicyFeed
from understudy.serving.shadow_pool import ShadowPool
from understudy.serving.turn import Clocks, Limits, Predictor
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference
from understudy.serving.upstream.champion_health import ChampionGauges, ChampionWatch
from understudy.settings import Settings

if TYPE_CHECKING:
    from understudy.bootstrap.upstream.shared_cache import SharedCache

GAUGE_SECONDS = 1.0
"""Also what a worker that is killed loses of its counters at most."""


@dataclass(slots=True)
class Parts:
    """What a proxy process has open."""

    predictor: Predictor
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
    tokens: TokenReader | None = None

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
                self.telemetry.set("replicas_known", replicas.known, *labels)
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
        tracer = open_tracer(settings, telemetry)
        if tracer is not None:
            stack.push_async_callback(tracer.close, FLUSH_SECONDS)
        spool = open_spool(settings, telemetry, stack)
        log = open_log(settings, spool, telemetry)
        last_calls = stack.enter_context(ExitStack())  # once the backends have ended all
        discovery = Discovery(SystemResolver(), settings.discovery_seconds)
        backends = BackendPool(partial(_make_caller, settings, telemetry, discovery))
        stack.push_async_callback(backends.close)
        shared_cache = _open_shared_cache(settings, telemetry, stack)
        feed = await _open_feed(settings, telemetry, backends, shared_cache, stack)
        open_shipper(settings, spool, feed, telemetry, stack)
        features = open_features(settings, stack)
        outcomes = _open_outcomes(settings, stack)
        shadows = _open_shadows(settings, feed, telemetry, stack)
        inference = _inference_of(settings, backends, shared_cache, telemetry)
        predictor = Predictor(
            snapshot=lambda: feed.snapshot,
            inference=inference,
            features=features,
            log=log,
            shadows=shadows,
            telemetry=telemetry,
            limits=_limits_of(settings),
            clocks=Clocks(monotonic=time.monotonic, unix=time.time, random_bytes=os.urandom),
        )
        last_calls.callback(predictor.flush)
        parts = Parts(
            predictor,
            feed,
            backends,
            ChampionWatch(backends, time.monotonic),
            shadows,
            telemetry,
            outcomes,
            control_of(settings),
            tracer=tracer,
            tokens=open_tokens(settings, telemetry, stack),
        )
        run_until_closed("gauges", partial(_publish, parts), telemetry, stack)
        watched = ChampionGauges(backends, lambda: feed.snapshot, telemetry)
        run_until_closed("champion_gauges", watched.run, telemetry, stack)
        yield parts


def _make_caller(
    settings: Settings, telemetry: PrometheusTelemetry, discovery: Discovery, version: ModelVersion
) -> BatchingCaller:
    labels = (version.model_name, version.version)
    hedging = Hedging(settings.hedge_ratio, settings.backend_calls, partial(telemetry.count, "hedges_total", *labels))
    count_failure = partial(telemetry.count, "discovery_failures_total", *labels)
    return BatchingCaller(
        version,
        connector_of(settings)(version, hedging=hedging, discovery=discovery._replace(on_failure=count_failure)),
        concurrency=settings.backend_concurrency,
        gap_seconds=settings.backend_gap_seconds,
        batch_rows=settings.backend_batch_rows,
        queue_rows=settings.backend_queue_rows,
        max_calls=settings.backend_calls,
        wait_seconds=settings.backend_wait_seconds,
        now=time.monotonic,
    )


async def _open_feed(
    settings: Settings,
    telemetry: PrometheusTelemetry,
    backends: BackendPool,
    shared_cache: "SharedCache | None",
    stack: AsyncExitStack,
) -> PolicyFeed:
    def act_on(snapshot: PolicySnapshot) -> None:
        backends.reconcile(snapshot)
        warm_ups.wake()
        if shared_cache is not None:
            shared_cache.act_on(snapshot)

    instance = f"{settings.instance}:{os.getpid()}"
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    inbox = PostgresWarmUpInbox(database_url, timeout_seconds=seconds)
    warm_ups = WarmUpAnswerer(inbox, instance, lambda: feed.snapshot, connector_of(settings))

    source = PostgresPolicySource(
        database_url,
        timeout_seconds=seconds,
        heartbeat_seconds=settings.policy_heartbeat_seconds,
        reads_cache_secret=shared_cache is not None and shared_cache.needs_secret,
    )
    stack.push_async_callback(source.close)
    feed = PolicyFeed(
        source,
        JsonSnapshotFile(settings.snapshot_path, partial(telemetry.count, "policy_snapshot_failures_total")),
        telemetry,
        instance=instance,
        poll_seconds=settings.policy_poll_seconds,
        now=time.monotonic,
        on_swap=act_on,
        in_flight=backends.in_flight,
        protocols=PROTOCOLS,
    )
    stack.push_async_callback(feed.stop)
    await feed.start()
    run_until_closed("warm_ups", warm_ups.run, telemetry, stack)
    return feed


def _open_shared_cache(
    settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> "SharedCache | None":
    if settings.redis_url is None:
        return None
    # Late: its client takes 40 ms of processor, which a proxy without Redis does without.
    from understudy.bootstrap.upstream.shared_cache import SharedCache  # noqa: PLC0415

    return SharedCache.open(settings.redis_url, settings, telemetry, stack)


def _open_outcomes(settings: Settings, stack: AsyncExitStack) -> OutcomeStore:
    store = PostgresOutcomeStore(
        settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
    )
    stack.push_async_callback(store.close)
    return store


def _open_shadows(
    settings: Settings, feed: PolicyFeed, telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> ShadowPool:
    """Open the pool of shadow calls, last of all, so that it closes first: they need everything opened before."""
    shadows = ShadowPool(settings.shadow_limit, partial(telemetry.count, "shadow_dropped_total"))
    # After the shadow calls, when nothing is sent any more by any policy, and before rows are shipped, which may take
    # all the time that there is.
    stack.push_async_callback(feed.sign_off)
    stack.push_async_callback(shadows.drain, settings.shadow_timeout_seconds)
    return shadows


def _inference_of(
    settings: Settings, backends: BackendPool, shared_cache: "SharedCache | None", telemetry: PrometheusTelemetry
) -> CachedInference:
    return CachedInference(
        backends,
        memory_cache=PredictionMemory(settings.memory_cache_bytes) if settings.memory_cache_bytes else None,
        shared_cache=shared_cache.cache if shared_cache is not None else None,
        telemetry=telemetry,
        now=time.monotonic,
    )


def _limits_of(settings: Settings) -> Limits:
    return Limits(
        feature_timeout_seconds=settings.feature_timeout_seconds,
        challenger_budget_ratio=settings.challenger_budget_ratio,
        shadow_timeout_seconds=settings.shadow_timeout_seconds,
    )


async def _publish(parts: Parts) -> None:
    while True:
        parts.publish()
        due_at = time.monotonic() + GAUGE_SECONDS
        await asyncio.sleep(GAUGE_SECONDS)
        parts.telemetry.observe("event_loop_lag_seconds", max(0.0, time.monotonic() - due_at))
