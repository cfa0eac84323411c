"""The log as a table of a data lake: what a proxy ships to it, and what the monitor commits.

Arrow and the library of Iceberg are imported only where ``UNDERSTUDY_LOG`` asks for them.
"""

import shutil
import time
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module

from understudy.adapters.archive.open import open_archive
from understudy.adapters.archive.run_folder import run_folder
from understudy.adapters.disk.spool import Spool
from understudy.adapters.lake.arrow_memory import keep_arrow_memory
from understudy.adapters.postgres.monitoring.lake_commits import PostgresLakeCommits
from understudy.adapters.postgres.monitoring.lake_rewrites import PostgresLakeRewrites
from understudy.adapters.postgres.prediction_log.lake_ledger import PostgresLakeLedger
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.prediction_log.lake_reads import STORE_SECONDS, lake_extra, table_location
from understudy.monitoring.lake_job import LakeJob
from understudy.monitoring.lake_upkeep import LakeUpkeep
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.lake import WaitingFiles
from understudy.ports.prediction_log.prediction_log import SpoolShelf
from understudy.settings import Settings
from understudy.shipping.lake_shipper import LakeShipper
from understudy.shipping.shared_spool import SharedSpool


def open_lake_shipper(
    settings: Settings, spool: Spool, telemetry: PrometheusTelemetry
) -> tuple[SpoolShelf, LakeShipper]:
    """Return the spool as the log's shipper sees it, and what ships it to the lake beside that.

    Raises:
        LakeUnavailable: The extra is not installed.
    """
    keep_arrow_memory()
    with lake_extra():
        from understudy.adapters.lake.parquet_rows import ParquetRows  # noqa: PLC0415 - needs an extra
    for outcome in ("written", "rejected"):
        # A counter that first appears with 1 has not increased, for Prometheus.
        telemetry.count("prediction_log_lake_rows_total", outcome, by=0)
    shared = SharedSpool(spool, shippers=2)
    folder = settings.state_dir / "lake" / spool.own.spool_id
    shutil.rmtree(folder, ignore_errors=True)  # what a process left that was killed
    shipper = LakeShipper(
        shared.shelf_of(0),
        # Not through a pooler, which UNDERSTUDY_LOG_DATABASE_URL may lead to: a call or two a minute.
        PostgresLakeLedger(settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds),
        _open_store(settings),
        partial(ParquetRows, folder),
        telemetry,
        interval_seconds=settings.lake_interval_seconds,
        file_bytes=settings.lake_file_bytes,
    )
    return shared.shelf_of(1), shipper


def open_lake_job(settings: Settings, telemetry: PrometheusTelemetry, stack: AsyncExitStack) -> LakeJob:
    """Return what commits stored files; its opener stops it when leadership ends.

    Raises:
        LakeUnavailable: The extra is not installed.
    """
    with lake_extra():
        from understudy.adapters.lake.iceberg_table import IcebergTable  # noqa: PLC0415 - needs an extra
        from understudy.adapters.lake.rewriting import IcebergRewrites  # noqa: PLC0415 - needs an extra
    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    store = _open_store(settings)
    table = IcebergTable(url, table_location(store), endpoint=settings.lake_endpoint, timeout_seconds=STORE_SECONDS)
    stack.callback(table.close)
    commits = PostgresLakeCommits(url, timeout_seconds=seconds)
    upkeep = LakeUpkeep(
        PostgresLakeRewrites(url, timeout_seconds=seconds),
        IcebergRewrites(table),
        store,
        partial(run_folder, "understudy-lake-merge-"),
        telemetry,
        days=settings.lake_days,
        now=time.monotonic,
    )
    return LakeJob(commits, table, store, upkeep, telemetry, now=time.monotonic)


async def waiting_files(settings: Settings) -> WaitingFiles:
    """Return what waits for a commit, for a check of the installation.

    Where the settings ask for the lake, or for reading it, the libraries must be there.

    Raises:
        LakeUnavailable: The extra is not installed.
        RegistryUnavailable: Postgres does not answer.
    """
    if settings.has_lake:
        with lake_extra():
            import_module("understudy.adapters.lake.iceberg_table")
    if settings.log_reads == "lake":
        with lake_extra():
            import_module("understudy.adapters.lake.reading.question")
    url = settings.database_url.get_secret_value()
    return await PostgresLakeCommits(url, timeout_seconds=settings.database_timeout_seconds).waiting()


def _open_store(settings: Settings) -> ArchiveStore:
    assert settings.lake_url is not None, "settings refuse a lake without a place"
    return open_archive(settings.lake_url, endpoint=settings.lake_endpoint, timeout_seconds=STORE_SECONDS)
