"""What a load asks of everything beside the pods: Redis, Postgres, disks, the network, the monitor, and money.

Arithmetic only, on ``loadtests/capacity.json``; the pods come from ``loadtests/fleet.py``. Rates are those of the peak,
volumes and money those of the day's mean.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from loadtests.fleet import Inputs, day

DAY_SECONDS = 86_400
MONTH_HOURS = 730
WINDOWS_A_MINUTE = 4
ROLES = 2
"""Windows of a rollout in each 15 s of each pod: champion and challenger."""
GIGA = 1e9
COPIES = 2
"""Postgres and Redis each have one standby."""
MONITOR_CORES = 2
MIN_REDIS_GB = 1.0
MIN_POSTGRES_CORES = 2
SPARE = 2.0
"""Cores of Postgres for each core that writes keep busy at the peak."""
MANY = 1e9
"""Calls a second, beyond which nobody asks what breaks."""


class Demand(NamedTuple):
    """What calls of one kind at one peak ask for; ``peak`` in calls a second, times in seconds, sizes in bytes."""

    kind: str
    peak: float
    mean: float
    pods: int
    redis_lookups: float
    redis_core: float
    redis_memory: float
    redis_wire: float
    rows: float
    transactions: float
    postgres_cores: float
    keeping_cores: float
    """Of those: what pods cost that only keep their policies fresh and their windows written."""
    postgres_wal: float
    postgres_connections: float
    outage_seconds: float
    """How long Postgres may be away at the peak before a pod's spool is full."""
    log_day: float
    log_kept: float
    archive_day: float
    windows_kept: float
    windows_a_minute: float
    rollout_count: float
    monitor_tick: float
    policy_change: float
    pod_network: float
    node_network: float
    zone_bytes: float
    """Bytes of one call that go to another zone."""

    @property
    def postgres_disk(self) -> float:
        return self.log_kept + self.windows_kept


def demand_of(inputs: Inputs, kind: str, peak: float, pods: int) -> Demand:
    """Return what a peak asks for."""
    of = _Rates(inputs, kind, peak, pods)
    mean = peak * float(day(inputs).mean())
    log_day = mean * DAY_SECONDS * (of.row("heap_bytes") + of.row("index_bytes"))
    pod_network = peak / pods * of.call_bytes
    return Demand(
        kind=kind,
        peak=peak,
        mean=mean,
        pods=pods,
        redis_lookups=of.lookups,
        redis_core=(of.lookups * inputs["redis_get_us"] + of.stores * inputs["redis_set_us"]) / 1e6,
        redis_memory=of.stores * inputs["cache_ttl_seconds"] * inputs["redis_entry_bytes"],
        redis_wire=of.redis_bytes * peak,
        rows=peak,
        transactions=of.transactions,
        postgres_cores=peak * of.row("us") / 1e6 + of.keeping_cores,
        keeping_cores=of.keeping_cores,
        postgres_wal=peak * of.row("wal_bytes") + of.window_writes * inputs["window_write_wal_bytes"],
        postgres_connections=pods * inputs["connections_to_postgres"],
        outage_seconds=inputs["spool_bytes"] / (peak / pods * of.row("spool_bytes")),
        log_day=log_day,
        log_kept=log_day * inputs["log_days"],
        archive_day=mean * DAY_SECONDS * of.row("parquet_bytes"),
        windows_kept=of.windows_a_minute * 1440 * inputs["window_days"] * inputs["window_bytes"],
        windows_a_minute=of.windows_a_minute,
        rollout_count=pods * ROLES * WINDOWS_A_MINUTE * 1440 * inputs["window_mark_us"] / 1e6,
        monitor_tick=(
            inputs["open_rollouts"] * pods * ROLES * inputs["windows_per_tick"] * inputs["window_read_us"] / 1e6
        ),
        policy_change=(
            pods * (inputs["notified_us"] + inputs["policy_load_us"]) / 1e6 / inputs.limit("postgres_cores")
        ),
        pod_network=pod_network,
        node_network=pod_network * min(inputs["pods_per_node"], pods / inputs["zones"]),
        zone_bytes=of.call_bytes * inputs["cross_zone_ratio"],
    )


class _Rates:
    """What happens how often at the peak."""

    def __init__(self, inputs: Inputs, kind: str, peak: float, pods: int) -> None:
        is_cached = kind == "predict"  # rank calls are not: ADR 19
        self._inputs = inputs
        self._kind = kind
        self.lookups = peak * (1 - inputs["found_in_process_ratio"]) * is_cached
        self.stores = self.lookups - peak * inputs["found_in_redis_ratio"] * is_cached
        self.transactions = pods / inputs["ship_every_seconds"]
        self.window_writes = self.transactions * inputs["windows_per_pod"]
        self.windows_a_minute = pods * inputs["windows_per_pod"] * WINDOWS_A_MINUTE
        self._pods = pods
        self._peak = peak

    def row(self, what: str) -> float:
        """Return a figure of a row of the log."""
        return self._inputs[f"row_{what}" if self._kind == "predict" else f"rank_row_{what}"]

    @property
    def keeping_cores(self) -> float:
        inputs = self._inputs
        each = (
            inputs["poll_us"] / inputs["poll_seconds"]
            + inputs["heartbeat_us"] / inputs["heartbeat_seconds"]
            + inputs["report_us"] / inputs["report_seconds"]
        )
        shipped = self.transactions * inputs["transaction_us"] + self.window_writes * inputs["window_write_us"]
        return (self._pods * each + shipped) / 1e6

    @property
    def redis_bytes(self) -> float:
        """Of one call, on average."""
        each = self._inputs["redis_wire_bytes"] + self._inputs["redis_overhead_bytes"]
        return (self.lookups + self.stores) / self._peak * each

    @property
    def call_bytes(self) -> float:
        """Of one call, over the pod's network: caller, model server, Redis and Postgres, both ways."""
        inputs = self._inputs
        caller = inputs[f"{self._kind}_body_bytes"] + inputs["http_bytes"]
        model = inputs[f"{self._kind}_model_bytes"]
        if self._kind == "rank":
            model += inputs["rank_answer_bytes"]
        else:
            model *= 1 - inputs["found_in_process_ratio"] - inputs["found_in_redis_ratio"]
        return caller + model + self.redis_bytes + self.row("spool_bytes")


class Bound(NamedTuple):
    """A limit of ``capacity.json`` and how much of it a demand uses."""

    name: str
    text: str
    used: Callable[[Demand], float]


BOUNDS = (
    Bound("redis_core", "Redis' one core", lambda demand: demand.redis_core),
    Bound("redis_memory", "memory of one Redis", lambda demand: demand.redis_memory),
    Bound("postgres_disk", "disk of one Postgres", lambda demand: demand.postgres_disk),
    Bound("windows_a_minute", "windows that the monitor can delete", lambda demand: demand.windows_a_minute),
    Bound("postgres_wal", "WAL of one Postgres", lambda demand: demand.postgres_wal),
    Bound("postgres_cores", "cores of one Postgres", lambda demand: demand.postgres_cores),
    Bound("postgres_connections", "connections of one Postgres", lambda demand: demand.postgres_connections),
    Bound("rollout_count", "counting an open rollout's windows", lambda demand: demand.rollout_count),
    Bound("monitor_tick", "the monitor's tick", lambda demand: demand.monitor_tick),
    Bound("policy_change", "a policy change read by all pods", lambda demand: demand.policy_change),
    Bound("node_network", "network of a node", lambda demand: demand.node_network),
)


def shares_of(inputs: Inputs, demand: Demand) -> Mapping[str, float]:
    """Return how much of each limit a demand uses; above 1 it is beyond it."""
    return {bound.name: bound.used(demand) / inputs.limit(bound.name) for bound in BOUNDS}


def breaks_at(inputs: Inputs, bound: Bound, demand_at: Callable[[float], Demand]) -> float:
    """Return the peak at which a limit is reached, by bisection; infinity beyond :data:`MANY` calls a second."""
    limit = inputs.limit(bound.name)
    low, high = 1.0, MANY
    if bound.used(demand_at(high)) <= limit:
        return math.inf
    if bound.used(demand_at(low)) > limit:
        return low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if bound.used(demand_at(middle)) > limit:
            high = middle
        else:
            low = middle
    return low


def cost_per_million(inputs: Inputs, demand: Demand) -> Mapping[str, float]:
    """Return dollars for a million calls at the day's mean, everything sized for the peak; no model servers."""
    calls_an_hour = demand.mean * 3600 / 1e6
    cores = max(MIN_POSTGRES_CORES, math.ceil(demand.postgres_cores * SPARE)) * COPIES
    redis_gb = max(MIN_REDIS_GB, demand.redis_memory / GIGA) * COPIES if demand.redis_lookups else 0.0
    redis_cores = math.ceil(demand.redis_core / inputs.limit("redis_core")) * COPIES
    archived = demand.archive_day / GIGA * inputs["archive_months"] * inputs["object_month"]
    return {
        "pods": demand.pods * inputs["core_hour"] / calls_an_hour,
        "Redis": (redis_cores * inputs["core_hour"] + redis_gb * inputs["memory_hour"]) / calls_an_hour,
        "Postgres": cores * inputs["core_hour"] / calls_an_hour,
        "its disk": demand.postgres_disk / GIGA * COPIES * inputs["disk_month"] / MONTH_HOURS / calls_an_hour,
        "archive": archived / (demand.mean * DAY_SECONDS / 1e6),
        "monitor": MONITOR_CORES * inputs["core_hour"] / calls_an_hour,
        "between zones": demand.zone_bytes * 1e6 / GIGA * inputs["zone_traffic"],
    }
