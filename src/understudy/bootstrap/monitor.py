"""The parts of a monitor process."""

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from understudy.adapters.http.alerts import PagerDutyChannel, WebhookChannel
from understudy.adapters.http.gates import HttpGates
from understudy.adapters.http.judges import HttpJudges
from understudy.adapters.http.metric_sources import HttpMetricSources
from understudy.adapters.http.receivers import HttpReceivers
from understudy.adapters.postgres.loading.placements import PostgresPlacementStore
from understudy.adapters.postgres.monitoring.changes import PostgresChangeHistory
from understudy.adapters.postgres.monitoring.lease import PostgresLease
from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore
from understudy.adapters.postgres.monitoring.notifications import PostgresNotificationOutbox
from understudy.adapters.postgres.monitoring.outbox import PostgresAlertOutbox
from understudy.adapters.postgres.monitoring.retention import PostgresRetentionStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
from understudy.adapters.postgres.prediction_log.partitions import PostgresPartitionKeeper
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.adapters.postgres.rollout.warm_ups import PostgresWarmUpRequests
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.prediction_log.lake import open_lake_job
from understudy.bootstrap.prediction_log.lake_reads import lake_place_of
from understudy.bootstrap.prediction_log.outcomes import measure_outcomes, outcome_log
from understudy.bootstrap.upstream.backends import answer_pairs, proxy_warm_up, score_comparison, warm_up_probe
from understudy.bootstrap.upstream.features import open_features
from understudy.core.alerts.alerts import Outcome
from understudy.core.rollout.guard_limits import GuardSettings, parse_guard_judges, parse_guard_metrics
from understudy.core.upstream.receivers import parse_receivers, parse_sources, parse_tokens
from understudy.core.windows.window import WINDOW_SECONDS
from understudy.loading.placement.placement_job import PlacementJob
from understudy.loading.placement.replica_watch import ReplicaWatch
from understudy.monitoring.alert_delivery import deliver_due
from understudy.monitoring.drift_job import DriftJob
from understudy.monitoring.metrics_job import MetricsJob
from understudy.monitoring.notification_delivery import NotificationDelivery
from understudy.monitoring.outcome_lag_job import OutcomeLagJob
from understudy.monitoring.partitions_job import PartitionsJob
from understudy.monitoring.retention_job import RetentionJob
from understudy.monitoring.score_tenths import ScoreTenths
from understudy.monitoring.skew_job import READ_SECONDS, SkewJob
from understudy.monitoring.worker import Job, MonitorWorker
from understudy.ports.monitoring.alerts import AlertChannel
from understudy.ports.monitoring.lease import Epoch, Lease
from understudy.rollout.checks.drift_check import DriftCheck
from understudy.rollout.checks.entity_check import EntityCheck
from understudy.rollout.checks.judge_check import JudgeCheck
from understudy.rollout.checks.metric_check import MetricCheck
from understudy.rollout.checks.outcome_check import OutcomeCheck
from understudy.rollout.checks.slice_check import TURNS as SLICE_TURNS
from understudy.rollout.checks.slice_check import SliceCheck
from understudy.rollout.executor import RolloutExecutor
from understudy.rollout.gate_asks import GateAsks
from understudy.rollout.metrics import begin_counts
from understudy.settings import Settings

ROLLOUTS_SECONDS = 30.0
"""Longest look at all rollouts; whatever is not written by then, the next one writes."""

LOG_SECONDS = 2.0
"""Longest question to the log in a tick of the rollouts: the other rollouts wait as long."""
DAY_SECONDS = 86_400.0
METRICS_SECONDS = 60.0
OUTCOMES_SECONDS = 60.0
ENTITIES_SECONDS = 60.0
SLICES_SECONDS = 60.0 / SLICE_TURNS
CHALLENGER_DRIFT_SECONDS = 30.0
"""Hours are over once an hour; a tick compares ten subjects of each rollout."""
DRIFT_SECONDS = 15.0
"""A tick judges one version, so an hour of twenty versions is judged within five minutes."""
SKEW_SECONDS = 15.0
"""Calls of so long are compared at a time: the sooner, the less has the feature store moved on."""
RETENTION_SECONDS = 60.0
PARTITIONS_SECONDS = 600.0
"""A month is made three months before its first row: what counts is that the gauges are not old."""
PLACEMENT_SECONDS = 1.0
"""How long a registered version waits to be given to agents; without agents a tick reads one empty table."""
SILENT_SERVERS_SECONDS = 10.0
MEASURING_SECONDS = 10.0
"""Longest run of one of these; what it did not do, the next one does."""

ALERT_BUDGET_SECONDS = 2.0
ALERT_SEND_SECONDS = 5.0
"""Jobs follow each other, so a receiver of alerts that hangs delays a rollback by these two together at most."""

NOTIFICATION_SEND_SECONDS = 10.0
"""Longest send of a notification: beside the jobs, so it delays no rollback and no alert."""
GATE_ASK_SECONDS = 10.0
"""Longest attempt to ask a gate of a rollout: beside the ticks, so it delays no rollback."""
METRIC_CHECK_SECONDS = 10.0
"""How long an answer waits to be stored; each metric is asked for once a minute."""
JUDGE_SECONDS = 10.0
"""How long a judge's words wait to be judged by, and its next questions to be asked."""
JUDGE_ASK_SECONDS = 30.0
"""Longest question to a judge, who may think: beside the jobs, so it delays no rollback."""
METRIC_READ_SECONDS = 10.0
"""Longest query of a metric: beside the jobs, so it delays no rollback."""
NOTIFICATION_FINISH_SECONDS = 0.8
"""The lease is free once these sends have ended or are broken off: the next leader must not wait for a receiver. Less
than the margin of a lease that was lost, or the next leader would lead while these go on."""
BACKLOG_SECONDS = 60.0
LAKE_SECONDS = 30.0
"""How long a stored file waits for its commit: each one is a snapshot of the table."""


@dataclass(slots=True)
class MonitorParts:
    """What a monitor process has open."""

    worker: MonitorWorker
    telemetry: PrometheusTelemetry


@asynccontextmanager
async def open_monitor(settings: Settings) -> AsyncIterator[MonitorParts]:
    """Open a monitor's parts in this process and event loop; no connection is made before the worker runs."""
    async with AsyncExitStack() as stack:
        telemetry = PrometheusTelemetry()
        lease = PostgresLease(settings.database_url.get_secret_value())
        stack.push_async_callback(lease.close)
        notifications = _open_notifications(settings, telemetry, stack)
        gates = _open_gates(settings, telemetry, stack)
        lake = open_lake_job(settings, telemetry, stack) if settings.has_lake else None
        metrics = _open_metric_check(settings, telemetry, stack)
        judges = _open_judge_check(settings, telemetry, stack)
        rollouts, *checks = _open_rollouts(settings, telemetry, stack, _Beside(gates, metrics, judges))
        skew = _open_skew_job(settings, telemetry, stack)
        jobs = [
            # A new leader has every job due, and runs them in this order: agents wait for no measurement.
            rollouts,
            *_placement_jobs(settings, telemetry, stack),
            *checks,
            *_measuring_jobs(settings, telemetry),
            *([] if skew is None else [Job("skew", SKEW_SECONDS, MEASURING_SECONDS, skew.tick)]),
            _open_alerts(settings, telemetry, stack),
            *_notification_jobs(settings, notifications),
            *([] if lake is None else [Job("lake", LAKE_SECONDS, MEASURING_SECONDS, lake.tick)]),
        ]

        async def stand_down() -> None:
            await gates.stop()
            await metrics.stop()
            await judges.stop()
            if skew is not None:
                await skew.stop()
            await notifications.stop()
            if lake is not None:
                await lake.stop()

        worker = make_worker(settings, lease, jobs, telemetry, stand_down)
        yield MonitorParts(worker, telemetry)


def make_worker(
    settings: Settings,
    lease: Lease,
    jobs: Sequence[Job],
    telemetry: PrometheusTelemetry,
    stand_down: Callable[[], Awaitable[None]] | None = None,
) -> MonitorWorker:
    """Return this process's worker, under a name that no process had before."""
    return MonitorWorker(
        lease,
        jobs,
        telemetry,
        holder=f"{settings.instance}:{os.getpid()}:{uuid4().hex[:12]}",
        finish_seconds=settings.drain_seconds,
        now=time.monotonic,
        unix=time.time,
        stand_down=stand_down,
    )


def _open_gates(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> GateAsks:
    text, secret = (
        "" if value is None else value.get_secret_value() for value in (settings.gates, settings.gate_secret)
    )
    gates = HttpGates(parse_receivers(text, noun="gate"), secret, timeout_seconds=GATE_ASK_SECONDS)
    stack.push_async_callback(gates.close)
    asks = GateAsks(gates, telemetry, settings.environment)
    stack.push_async_callback(asks.stop)
    return asks


def _open_metric_check(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> MetricCheck:
    addresses, tokens = (
        "" if value is None else value.get_secret_value()
        for value in (settings.metric_sources, settings.metric_source_tokens)
    )
    known = parse_sources(addresses)
    sources = HttpMetricSources(
        known, parse_tokens(tokens, known, "metric source"), timeout_seconds=METRIC_READ_SECONDS
    )
    stack.push_async_callback(sources.close)
    store = PostgresRolloutStore(
        settings.database_url.get_secret_value(),
        timeout_seconds=settings.database_timeout_seconds,
        on_unusable=_unusable_rows(telemetry),
    )
    check = MetricCheck(store, sources, telemetry)
    stack.push_async_callback(check.stop)
    return check


def _open_judge_check(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> JudgeCheck:
    addresses, tokens = (
        "" if value is None else value.get_secret_value() for value in (settings.judges, settings.judge_tokens)
    )
    known = parse_receivers(addresses, noun="judge")
    judges = HttpJudges(known, parse_tokens(tokens, known, "judge"), timeout_seconds=JUDGE_ASK_SECONDS)
    stack.push_async_callback(judges.close)
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    policies = PostgresPolicySource(database_url, timeout_seconds=seconds, reads_keys=False)
    stack.push_async_callback(policies.close)
    store = PostgresRolloutStore(database_url, timeout_seconds=seconds, on_unusable=_unusable_rows(telemetry))
    history = PostgresPredictionHistory(database_url, timeout_seconds=LOG_SECONDS)
    check = JudgeCheck(store, judges, answer_pairs(settings, policies, history), telemetry)
    stack.push_async_callback(check.stop)
    return check


def _open_skew_job(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> SkewJob | None:
    features = open_features(settings, stack, READ_SECONDS)
    if features is None:
        return None
    store = PostgresMetricStore(
        settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
    )
    job = SkewJob(store, features, telemetry, environment=settings.environment)
    stack.push_async_callback(job.stop)
    return job


class _Beside(NamedTuple):
    """What asks other services for rollouts, beside the jobs."""

    gates: GateAsks
    metrics: MetricCheck
    judges: JudgeCheck


def _open_rollouts(
    settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack, beside: _Beside
) -> list[Job]:
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    policies = PostgresPolicySource(database_url, timeout_seconds=seconds, reads_keys=False)
    stack.push_async_callback(policies.close)
    count_unusable = _unusable_rows(telemetry)
    store = PostgresRolloutStore(database_url, timeout_seconds=seconds, on_unusable=count_unusable)
    alone = lake_place_of(settings) if settings.is_lake_alone else None
    outcomes = OutcomeCheck(store, measure_outcomes(outcome_log(database_url, MEASURING_SECONDS, alone)), telemetry)
    history = PostgresPredictionHistory(database_url, timeout_seconds=LOG_SECONDS)
    windows = PostgresWindowLog(database_url, timeout_seconds=seconds, on_unusable=count_unusable)
    entities, slices = EntityCheck(store, history), SliceCheck(store, windows)
    metrics = PostgresMetricStore(database_url, timeout_seconds=seconds)
    drifts = DriftCheck(store, metrics, environment=settings.environment)
    requests = PostgresWarmUpRequests(database_url, timeout_seconds=seconds, on_unusable=count_unusable)
    proxies = proxy_warm_up(settings, requests)
    executor = RolloutExecutor(
        store,
        windows,
        outcomes.latest,
        warm_up_probe(settings, policies, proxies),
        telemetry,
        scores=score_comparison(settings, policies, history, windows, proxies),
        entities=entities,
        drifts=drifts,
        slices=slices,
        gates=beside.gates,
        metrics_of=beside.metrics.latest,
        judgements_of=beside.judges.latest,
        environment=settings.environment,
        guard_seconds=settings.guard_days * DAY_SECONDS,
        guard_settings=_guard_settings(settings),
        tick_seconds=settings.monitor_tick_seconds,
    )
    return [
        Job("rollouts", settings.monitor_tick_seconds, ROLLOUTS_SECONDS, executor.tick, is_vital=True),
        Job("outcomes", OUTCOMES_SECONDS, MEASURING_SECONDS, outcomes.tick),
        Job("metric_checks", METRIC_CHECK_SECONDS, MEASURING_SECONDS, beside.metrics.tick),
        Job("judges", JUDGE_SECONDS, MEASURING_SECONDS, beside.judges.tick),
        Job("entities", ENTITIES_SECONDS, MEASURING_SECONDS, entities.tick),
        Job("challenger_drift", CHALLENGER_DRIFT_SECONDS, MEASURING_SECONDS, drifts.tick),
        Job("slices", SLICES_SECONDS, MEASURING_SECONDS, slices.tick),
    ]


def _guard_settings(settings: Settings) -> GuardSettings:
    metrics, judges, addresses = (
        "" if value is None else value.get_secret_value()
        for value in (settings.guard_metrics, settings.guard_judges, settings.judges)
    )
    known = parse_receivers(addresses, noun="judge")
    return GuardSettings(parse_guard_metrics(metrics), parse_guard_judges(judges, known))


def _unusable_rows(telemetry: PrometheusTelemetry) -> Callable[[str, int], None]:
    for table in ("PredictionWindow", "ProxyInstance", "WarmUpAnswer"):
        telemetry.count("unusable_rows_total", table, by=0)
    return lambda table, rows: telemetry.count("unusable_rows_total", table, by=rows)


def _measuring_jobs(settings: Settings, telemetry: PrometheusTelemetry) -> list[Job]:
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    store = PostgresMetricStore(database_url, timeout_seconds=seconds)
    windows = PostgresWindowLog(database_url, timeout_seconds=seconds)
    changes = PostgresChangeHistory(database_url, timeout_seconds=seconds)
    drift = DriftJob(store, windows, telemetry, environment=settings.environment, changes=changes)
    deleting_url = settings.deleting_url

    def begin_all(model_names: Collection[str]) -> None:
        for name in model_names:
            begin_counts(telemetry, name)

    retention = RetentionJob(
        PostgresWindowLog(deleting_url, timeout_seconds=seconds),
        PostgresMetricStore(deleting_url, timeout_seconds=seconds),
        PostgresRetentionStore(deleting_url, timeout_seconds=seconds),
        window_days=settings.window_days,
        metric_days=settings.metric_days,
        input_days=settings.input_sample_days,
        outcome_days=settings.outcome_days,
    )
    metrics = MetricsJob(store, windows, begin_all, ScoreTenths(store, telemetry))
    partitions = PartitionsJob(PostgresPartitionKeeper(database_url, timeout_seconds=seconds), telemetry)
    return [
        Job("metrics", METRICS_SECONDS, MEASURING_SECONDS, metrics.tick),
        Job("outcome_lag", OUTCOMES_SECONDS, MEASURING_SECONDS, OutcomeLagJob(store, telemetry).tick),
        Job("drift", DRIFT_SECONDS, MEASURING_SECONDS, drift.tick),
        Job("retention", RETENTION_SECONDS, MEASURING_SECONDS, retention.tick),
        Job("partitions", PARTITIONS_SECONDS, MEASURING_SECONDS, partitions.tick),
    ]


def _placement_jobs(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> list[Job]:
    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    store = PostgresPlacementStore(url, timeout_seconds=seconds)
    stack.push_async_callback(store.close)
    windows = PostgresWindowLog(url, timeout_seconds=seconds)
    replicas = ReplicaWatch(windows.of_versions, now=time.monotonic, concurrency=settings.replica_concurrency)
    idle_seconds = settings.idle_unload_seconds
    placement = PlacementJob(store, telemetry, now=time.monotonic, idle_seconds=idle_seconds, count=replicas.counts)
    return [
        Job("placement", PLACEMENT_SECONDS, MEASURING_SECONDS, placement.tick),
        Job("replicas", float(WINDOW_SECONDS), MEASURING_SECONDS, replicas.tick),
        Job("silent_servers", SILENT_SERVERS_SECONDS, MEASURING_SECONDS, placement.drop_silent_servers),
    ]


def _open_alerts(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> Job:
    channels = _open_channels(settings, stack)
    for channel in channels:
        for outcome in Outcome:
            # A counter that first appears with 1 has not increased, for Prometheus.
            telemetry.count("alert_deliveries_total", channel.name, outcome.value, by=0)
    outbox = PostgresAlertOutbox(
        settings.database_url.get_secret_value(),
        [channel.name for channel in channels],
        timeout_seconds=settings.database_timeout_seconds,
    )
    stack.push_async_callback(outbox.close)

    # Without a fence: each event is taken by one process for a minute, and bears being sent twice.
    async def deliver(_epoch: Epoch) -> None:
        came_to = await deliver_due(
            outbox, channels, budget_seconds=ALERT_BUDGET_SECONDS, runbooks_url=settings.runbooks_url
        )
        for (channel, outcome), count in came_to.items():
            telemetry.count("alert_deliveries_total", channel, outcome.value, by=count)

    timeout_seconds = ALERT_BUDGET_SECONDS + ALERT_SEND_SECONDS + 2 * settings.database_timeout_seconds
    return Job("alerts", settings.monitor_tick_seconds, timeout_seconds, deliver)


def _open_notifications(
    settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack
) -> NotificationDelivery:
    text = "" if settings.receivers is None else settings.receivers.get_secret_value()
    receivers = HttpReceivers(parse_receivers(text), settings.environment, timeout_seconds=NOTIFICATION_SEND_SECONDS)
    stack.push_async_callback(receivers.close)
    outbox = PostgresNotificationOutbox(
        settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
    )
    stack.push_async_callback(outbox.close)
    delivery = NotificationDelivery(outbox, receivers, telemetry, finish_seconds=NOTIFICATION_FINISH_SECONDS)
    stack.push_async_callback(delivery.stop)
    return delivery


def _notification_jobs(settings: Settings, delivery: NotificationDelivery) -> list[Job]:
    seconds = 2 * settings.database_timeout_seconds
    return [
        Job("notifications", settings.monitor_tick_seconds, seconds, delivery.tick),
        Job("notification_backlog", BACKLOG_SECONDS, MEASURING_SECONDS, delivery.measure),
    ]


def _open_channels(settings: Settings, stack: AsyncExitStack) -> list[AlertChannel]:
    channels: list[AlertChannel] = []
    if settings.pagerduty_routing_key is not None:
        routing_key = settings.pagerduty_routing_key.get_secret_value()
        channels.append(PagerDutyChannel(routing_key, timeout_seconds=ALERT_SEND_SECONDS))
    if settings.alert_webhook_url is not None:
        channels.append(
            WebhookChannel(settings.alert_webhook_url.get_secret_value(), timeout_seconds=ALERT_SEND_SECONDS)
        )
    for channel in channels:
        stack.push_async_callback(channel.close)
    return channels
