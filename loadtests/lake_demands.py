"""What a load asks for with the log in the lake alone: arithmetic on the figures of ``loadtests/capacity.json``."""

from typing import NamedTuple

from loadtests.demands import Demand
from loadtests.fleet import Inputs


class LakeDemand(NamedTuple):
    """What predict calls ask of the object store and of the monitor, and what is left for Postgres; at the peak."""

    files_a_minute: float
    """That proxies write, of one model."""
    bytes_a_second: float
    year_bytes: float
    merging_cores: float
    """Of the monitor, which merges one file at a time; above 1 small files are left."""
    left: Demand
    """Of Postgres and the rest: its rows, their WAL and their disk are gone, and files are named and committed."""


def in_lake_alone(inputs: Inputs, demand: Demand) -> LakeDemand:
    """Return what predict calls ask for with ``UNDERSTUDY_LOG=lake``."""
    per_pod = demand.peak / demand.pods * inputs["row_spool_bytes"]
    a_minute = 60 / min(inputs["lake_interval_seconds"], inputs["lake_file_bytes"] / per_pod)
    rows_us = inputs["lake_row_us"] - inputs["row_us"]
    return LakeDemand(
        files_a_minute=demand.pods * a_minute,
        bytes_a_second=demand.peak * inputs["row_parquet_bytes"],
        year_bytes=demand.archive_day * 365,
        merging_cores=demand.peak * inputs["lake_merge_us"] / 1e6,
        left=demand._replace(
            postgres_cores=demand.postgres_cores + demand.peak * rows_us / 1e6,
            postgres_wal=demand.postgres_wal - demand.peak * inputs["row_wal_bytes"],
            log_day=0.0,
            log_kept=0.0,
        ),
    )
