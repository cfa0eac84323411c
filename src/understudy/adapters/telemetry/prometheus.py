"""Metrics for Prometheus. One process keeps them in memory; gunicorn's workers share files (multiprocess mode)."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.samples import Sample

from understudy import __version__
from understudy.adapters.telemetry.prometheus_files import SharedFiles
from understudy.adapters.telemetry.prometheus_slots import CounterSlot, HistogramSlot, Slots

if TYPE_CHECKING:  # numpy, which processes that answer no calls do without
    from understudy.core.routing.policy import ModelVersion

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the shared folder; the library reads it, too."""
EDGES_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)
JOB_EDGES_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LAG_EDGES_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
ROLLBACK_EDGES = (0.5, 1, 2.5, 5, 10, 15, 20, 30, 60)
SCORE_EDGES = tuple(edge / 20 for edge in range(1, 21))
_LINES_TOGETHER = 50
"""Lines of the page between two pauses, about half a millisecond's work."""
_SAMPLES_TOGETHER = 150
"""Samples of a gauge between two pauses: as much work, since their lines are not rendered yet."""
_REST_SECONDS = 0.001
"""A pause. The page of 10,000 models has 40,000 lines, and a thread that renders them without pauses takes the GIL from
the event loop after each of its system calls."""
_CALL = ("model", "version", "role")
_CHECK = ("model", "version", "check")

COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "predict_requests_total": ("Predict calls by who answered and how it ended.", (*_CALL, "outcome")),
    "dialect_calls_total": (
        "Calls in another protocol, by where their entity was found.",
        ("model", "dialect", "entity"),
    ),
    "grpc_calls_total": ("Calls on the gRPC port, by method and status code.", ("method", "code")),
    "grpc_answers_unread_total": ("Answers on the gRPC port that were ended, since no caller took them.", ("reason",)),
    "feature_skew_calls_total": ("Calls whose features were compared with the feature store's.", ("outcome",)),
    "fallbacks_total": ("Challenger failures that the champion answered for.", ("model", "reason")),
    "cache_requests_total": ("Look-ups in the prediction cache.", ("model", "result")),
    "cache_errors_total": ("Redis commands that failed.", ()),
    "cache_rejected_total": ("Values in Redis that no proxy of ours can have put there like that.", ("reason",)),
    "feature_fetch_total": ("Feature store look-ups.", ("outcome",)),
    "feature_missing_total": ("Stored features that the store did not have.", ("model", "feature")),
    "hedges_total": ("Second calls to another replica, by what became of them.", ("model", "version", "outcome")),
    "discovery_failures_total": ("Questions for the addresses of a version's names that failed.", ("model", "version")),
    "shadow_dropped_total": ("Shadow calls that found the set full.", ("model",)),
    "policy_listen_failures_total": ("Times the notification channel was found dead.", ()),
    "policy_snapshot_failures_total": ("Policies that could not be saved on disk.", ()),
    "prediction_log_rows_total": (
        "Rows by fate: written, dropped or refused (spool or disk full), rejected.",
        ("outcome",),
    ),
    "input_samples_total": ("Inputs that were to be logged, by what became of them.", ("model", "outcome")),
    "prediction_log_errors_total": ("Failed attempts to ship rows.", ("kind",)),
    "prediction_log_spool_failures_total": (
        "Failures of the disk under the spool, by kind.",
        ("kind",),
    ),
    "prediction_log_lake_rows_total": ("Rows on their way to files of the lake, by what became of them.", ("outcome",)),
    "prediction_log_lake_files_total": ("Files of rows that were stored for the lake.", ()),
    "prediction_log_lake_errors_total": ("Failed attempts to store files for the lake, by kind.", ("kind",)),
    "background_failures_total": ("Defects that ended a background task, which was then started again.", ("task",)),
    "process_cpu_seconds_total": ("Processor time of the process.", ()),
    "rollout_transitions_total": ("Changes of rollouts, by the phase they led to and why.", ("model", "to", "reason")),
    "rollbacks_total": ("Rollouts that were taken back, by whom and for what.", ("model", "trigger", "reason")),
    "http_requests_refused_total": ("Requests answered with a problem before a route was known.", ("code",)),
    "http_requests_invalid_total": ("Requests that their connection refused, before any route.", ("reason",)),
    "connections_refused_total": ("Connections of callers that overload refused, by trigger.", ("trigger",)),
    "idle_connections_closed_total": ("Connections without a request that overload closed.", ("trigger",)),
    "tls_handshake_failures_total": ("TLS handshakes of callers that did not come to their end.", ("outcome",)),
    "monitor_failures_total": ("Runs of a monitor's job that failed or were late.", ("job",)),
    "agent_failures_total": ("Rounds of an agent that failed or were late.", ("job",)),
    "load_failures_total": ("Versions that could not be fetched, loaded or unloaded, by error code.", ("code",)),
    "many_unplaced_total": ("Times that most versions of an agent's server were placed no more at once.", ()),
    "placements_restored_total": ("Placements that another session deleted, and the monitor wrote again.", ()),
    "unusable_rows_total": ("Rows of proxies that the monitor read and left out: no proxy wrote them so.", ("table",)),
    "trace_spans_total": ("Spans by fate: sent, failed (the collector did not take them), dropped.", ("outcome",)),
    "lake_commits_total": ("Commits to the lake's table.", ()),
    "lake_files_merged_total": ("Files of the lake's table that became one with others.", ()),
    "lake_rows_dropped_total": ("Rows of the lake's table that were dropped by age.", ()),
    "lake_rows_committed_total": ("Rows that commits to the lake's table added.", ()),
    "alert_deliveries_total": ("Attempts to deliver an alert by how they ended.", ("channel", "outcome")),
    "gate_answers_total": ("Attempts to ask a gate of a rollout, by what it answered.", ("gate", "answer")),
    "metric_reads_total": ("Questions for a metric of a plan to its source, by what came.", ("source", "outcome")),
    "judge_questions_total": ("Questions to a judge of a rollout, by what came of them.", ("judge", "outcome")),
    "judge_cost_total": ("What questions to a judge cost, in the currency of plans.", ("judge",)),
    "source_looks_total": ("Looks at sources of versions, by how the source stood.", ("source", "state")),
    "notification_deliveries_total": ("Attempts to deliver an event to a subscription.", ("subscription", "outcome")),
}
GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "judge_first_points_ratio": ("Share of the points that a judge gives what stands first; 0.5 is fair.", ("model",)),
    "policy_generation": ("Generation of the policy this proxy acts on.", ("model",)),
    "policy_age_seconds": ("Time since Postgres last confirmed the policies.", ()),
    "oidc_issuer_away_seconds": ("How long the keys of the tokens' issuer could not be fetched.", ()),
    "policy_degraded": ("1 while Postgres does not confirm the policies.", ()),
    "policy_rejected": ("1 while a model's newest rows cannot be used, or not all of them.", ("model",)),
    "policy_info": ("1, with who has which role.", ("model", "champion", "challenger", "shadow")),
    "shared_cache_off": ("1 while REDIS_URL is set, and nothing authenticates what is in Redis.", ()),
    "champion_unreachable": ("1 while no model server of the champion says that it is ready.", ("model",)),
    "challenger_weight_ratio": ("Configured share of the challenger.", ("model",)),
    "arms_weight_ratio": ("Configured share of all further arms together.", ("model",)),
    "replicas_known": ("Replicas of a version, discovered ones included.", ("model", "version")),
    "replicas_ejected": ("Replicas of a version that get no calls now.", ("model", "version")),
    "upstream_in_flight": ("Calls to a version's model servers under way.", ("model", "version")),
    "requests_in_flight": ("Predict calls under way.", ()),
    "shadow_in_flight": ("Shadow calls under way.", ()),
    "prediction_log_spool_bytes": ("Bytes of rows on disk that Postgres does not have yet.", ()),
    "prediction_log_oldest_seconds": ("Age of the oldest row that Postgres does not have yet.", ()),
    "prediction_log_lake_spool_bytes": ("Bytes of rows on disk that no stored file of the lake holds yet.", ()),
    "prediction_log_lake_waiting_seconds": ("How long rows have waited for a file of the lake.", ()),
    "process_resident_memory_bytes": ("Memory of the process that is not on disk.", ()),
    "process_open_fds": ("Files and sockets that the process has open.", ()),
    "process_max_fds": ("Files and sockets that the process may have open.", ()),
    "connections_open": ("Connections of callers.", ()),
    "connections_limit": ("Connections of callers that the process takes.", ()),
    "overload_active": ("1 while a trigger has new connections refused, or idle ones closed.", ("trigger",)),
    "rollout_stage_ratio": ("Share that an open rollout's step gives the challenger.", ("model",)),
    "rollout_gate_waiting_seconds": ("How long an open rollout has waited at a gate.", ("model", "waiting_for")),
    "canary_check_value": ("Change of the challenger against the champion.", _CHECK),
    "canary_check_limit": ("Change that is tolerated.", _CHECK),
    "canary_check_state": (
        "0 pass, 1 too early, 2 worse but unproven, 2.5 warming, 2.75 shared, 3 fail, 4 invalid.",
        _CHECK,
    ),
    "experiment_srm_p_value": ("How likely a split like the one seen is by chance.", ("model", "version")),
    "outcome_lag_seconds": ("Time since the last outcome of a model came.", ("model",)),
    "outcome_join_ratio": ("Share of a rollout's entities that have an outcome.", ("model",)),
    "drift_score": ("Distance from the baseline, in the method's unit.", ("model", "version", "subject", "method")),
    "drift_threshold": ("Distance that is tolerated.", ("model", "version", "subject", "method")),
    "prediction_tenths": (
        "Scores of the last minute in each of the champion's tenths, by the edge that it goes up to.",
        ("model", "version", "role", "up_to"),
    ),
    "feature_skew_ratio": (
        "Share of calls that were served another value than the feature store's, or none.",
        ("model", "version", "feature"),
    ),
    "feature_skewed": ("1 where that is shown to be beyond the limit.", ("model", "version", "feature")),
    "source_away_seconds": ("How long a registry of a source has not answered.", ("source",)),
    "source_waiting_seconds": ("How long a source's label has asked for what is not done.", ("source",)),
    "notifications_waiting": ("Notifications that wait for a subscription's receiver.", ("subscription",)),
    "notification_oldest_seconds": ("How long the oldest one that waits has waited.", ("subscription",)),
    "partitions_ahead": ("Months after this one that the log has partitions for.", ()),
    "archive_months_awaiting_drop": ("Archived months of the log whose table is still there, and will be dropped.", ()),
    "archive_last_success_timestamp_seconds": ("When archiving last came to its end, since the epoch.", ()),
    "lake_files_waiting": ("Files of rows that are stored and not in the lake's table yet.", ()),
    "lake_oldest_file_seconds": ("How long the oldest of them has waited.", ()),
    "loaded_versions": ("Versions of the agent's model server, by their recorded state.", ("state",)),
    "versions_not_available": ("Versions that the agent's model server is to have, and that are not available.", ()),
    "model_server_memory_bytes": (
        "The memory of the agent's model server: its capacity, what versions take, and what its process does.",
        ("what",),
    ),
    "model_server_unmanageable": (
        "1 while the agent's model server does not answer its control, lets nothing be loaded, or is of another kind.",
        (),
    ),
    "version_servers_missing": (
        "Live servers of its group that do not have a wanted version; 1 where the group has none.",
        ("model", "version"),
    ),
    "version_replicas": (
        "Servers that a version with a range of them is to be on by its calls, and on which it is available.",
        ("model", "version", "what"),
    ),
    "agent_leader": ("1 while this process is its server's agent, and no other stands in for it.", ()),
    "agent_last_success_timestamp_seconds": (
        "When an agent's round last succeeded or, before, its process became the agent.",
        ("job",),
    ),
    "monitor_leader": ("1 while this monitor leads.", ()),
    "monitor_last_success_timestamp_seconds": (
        "When a job last succeeded or, before, its process began to lead.",
        ("job",),
    ),
}
SHOWN_ONCE_SET = frozenset({"partitions_ahead"})
"""Gauges of which 0 is bad news. The library shows 0 of a gauge without labels that was never set, and so each process
that does not measure it, a proxy or a standby monitor, would say that there are no partitions."""
HISTOGRAMS: Mapping[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "predict_duration_seconds": ("Duration of a predict call inside the proxy.", _CALL, EDGES_SECONDS),
    "prediction_score": ("Scores that were answered.", _CALL, SCORE_EDGES),
    "prediction_log_ship_duration_seconds": ("Duration of one transaction of log rows.", (), JOB_EDGES_SECONDS),
    "load_duration_seconds": ("Duration of a fetch, load or unload that succeeded.", ("step",), JOB_EDGES_SECONDS),
    "agent_tick_duration_seconds": ("Duration of an agent's round.", ("job",), JOB_EDGES_SECONDS),
    "event_loop_lag_seconds": ("How late the event loop is, once a second.", (), LAG_EDGES_SECONDS),
    "rollback_duration_seconds": ("From a rollback to the last proxy that confirms it.", ("model",), ROLLBACK_EDGES),
    "monitor_tick_duration_seconds": ("Duration of one run of a monitor's job.", ("job",), JOB_EDGES_SECONDS),
}


class PrometheusTelemetry:
    """Implements ``ports.Telemetry``: counts in slots, which are copied to the library at a scrape.

    With several workers a scrape reads files that they share. :meth:`share` writes this worker's counts there; the
    worker calls it once a second and at its end.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Slots(Counter(name, text, labels, registry=self.registry), CounterSlot)
            for name, (text, labels) in COUNTERS.items()
        }
        self._gauges = {
            name: (_GaugeShownOnceSet if name in SHOWN_ONCE_SET else _PacedGauge)(
                name, text, labels, registry=self.registry, multiprocess_mode="liveall"
            )
            for name, (text, labels) in GAUGES.items()
        }
        self._histograms = {
            name: Slots(Histogram(name, text, labels, registry=self.registry, buckets=edges), HistogramSlot)
            for name, (text, labels, edges) in HISTOGRAMS.items()
        }
        build = Gauge("build_info", "1, with the version.", ("version",), registry=self.registry)
        build.labels(__version__).set(1)
        self._calls: dict[tuple[int, str, str], tuple[CounterSlot, HistogramSlot, HistogramSlot]] = {}
        self._sharing = Lock()

    def predicted(
        self, version: "ModelVersion", role: str, outcome: str, seconds: Sequence[float], scores: Sequence[float]
    ) -> None:
        """Count calls of a version that ended alike: the duration of each, and the scores of those that have one."""
        requests, durations, scored = self._calls.get((version.id, role, outcome)) or self._bind(version, role, outcome)
        requests.total += len(seconds)
        durations.observe_all(seconds)
        scored.observe_all(scores)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        if by < 0:
            raise ValueError(f"the counter {name} cannot go down (by {by}); use a gauge")
        slots = self._counters[name]
        (slots.find(labels) or slots.bind(labels)).total += by

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add to a histogram."""
        slots = self._histograms[name]
        (slots.find(labels) or slots.bind(labels)).observe(value)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def forget(self, name: str, *labels: str) -> None:
        """Drop a gauge's series; in multiprocess mode, where the library cannot, it stays and is 0."""
        if _is_multiprocess():
            self.set(name, 0, *labels)
        else:
            self._gauges[name].remove(*labels)

    def share(self) -> None:
        """Copy the counts to the library, and so to the shared files; any thread may call it."""
        # One at a time: an older number written last would make a counter go down.
        with self._sharing:
            for counter in self._counters.values():
                counter.share()
            for histogram in self._histograms.values():
                histogram.share()

    def exposition(self) -> tuple[bytes, str]:
        """Return the page for a scrape and its content type; in multiprocess mode of all workers together.

        Call it in a thread: it pauses often, so that the event loop gets the GIL.
        """
        self.share()
        if _is_multiprocess():
            together = CollectorRegistry()
            together.register(SharedFiles(Path(os.environ[_FOLDER])))
            return generate_latest(_Paced(together)), CONTENT_TYPE_LATEST
        return generate_latest(_Paced(self.registry)), CONTENT_TYPE_LATEST

    def _bind(
        self, version: "ModelVersion", role: str, outcome: str
    ) -> tuple[CounterSlot, HistogramSlot, HistogramSlot]:
        labels = (version.model_name, version.version, role)
        requests, durations, scores = (
            self._counters["predict_requests_total"],
            self._histograms["predict_duration_seconds"],
            self._histograms["prediction_score"],
        )
        counted = (*labels, outcome)
        bound = self._calls[version.id, role, outcome] = (
            requests.find(counted) or requests.bind(counted),
            durations.find(labels) or durations.bind(labels),
            scores.find(labels) or scores.bind(labels),
        )
        return bound


class _PacedGauge(Gauge):
    """A gauge whose samples are gathered with pauses: of all metrics only gauges have a series for each model.

    The library gathers all series of a metric before it renders one: of 10,000 models for 35 ms at a time.
    """

    def _multi_samples(self) -> Iterable[Sample]:
        return _with_pauses(super()._multi_samples(), _SAMPLES_TOGETHER)


class _GaugeShownOnceSet(_PacedGauge):
    """A gauge without labels that has no sample, in the shared files neither, before it is set."""

    _is_set = False

    def _metric_init(self) -> None:
        """Make no value yet: the library would show 0."""

    def set(self, value: float) -> None:
        if not self._is_set:
            super()._metric_init()
            self._is_set = True
        super().set(value)

    def _child_samples(self) -> Iterable[Sample]:
        return super()._child_samples() if self._is_set else ()


class _Paced:
    """A registry whose samples are iterated with pauses."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, with pauses while their samples are iterated."""
        for metric in self._registry.collect():
            # The library iterates them once, whatever they are.
            samples: Any = _with_pauses(metric.samples, _LINES_TOGETHER)
            metric.samples = samples
            yield metric


def _with_pauses(samples: Iterable[Sample], together: int) -> Iterator[Sample]:
    for number, sample in enumerate(samples, start=1):
        if number % together == 0:
            time.sleep(_REST_SECONDS)
        yield sample


def _is_multiprocess() -> bool:
    return _FOLDER in os.environ
