"""What moves old months of the log into files, and what reads both as one; opened for the length of a command."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.adapters.archive.open import archive_extra, open_archive
from understudy.adapters.postgres.prediction_log.archive_ledger import open_ledger
from understudy.errors import ArchiveUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.log_archive import LogFiles, WantedRows
from understudy.retention.archiver import Ages, Archiver, Progress
from understudy.retention.log_files import gather
from understudy.settings import Settings

if TYPE_CHECKING:  # needs an extra
    from understudy.adapters.archive.duckdb_log import LogQuery

DAY_SECONDS = 86_400.0
STORE_SECONDS = 60.0
"""Longest time of one request to S3: a file is at most some hundred megabytes, sent in pieces."""


def ages_of(settings: Settings, after_seconds: float | None = None) -> Ages:
    """Return when months go: by the settings, or another time after their end."""
    after = settings.archive_after_days * DAY_SECONDS if after_seconds is None else after_seconds
    return Ages(after, settings.input_sample_days * DAY_SECONDS)


@asynccontextmanager
async def open_archiver(
    settings: Settings, url: str | None, on_progress: Callable[[Progress], None]
) -> AsyncIterator[tuple[Archiver, ArchiveStore]]:
    """Open what archives, under the login that may, to ``url`` or else to the place that the settings name.

    Raises:
        ArchiveUnavailable: No place is named, or it cannot be used, or the extra is not installed.
        RegistryUnavailable: Postgres does not answer.
    """
    place = url or settings.archive_url
    if place is None:
        raise ArchiveUnavailable(
            "no place for old months is named",
            hint="Set UNDERSTUDY_ARCHIVE_URL to s3://bucket/prefix or a folder, or name one with --to.",
        )
    with archive_extra():
        from understudy.adapters.postgres.prediction_log.archive_rows import open_archive_rows  # noqa: PLC0415 - needs an extra
    store = open_store(settings, place)
    seconds = settings.database_timeout_seconds
    with tempfile.TemporaryDirectory(prefix="understudy-archive-") as folder:
        async with (
            open_ledger(settings.deleting_url, timeout_seconds=seconds) as ledger,
            open_archive_rows(settings.deleting_url, timeout_seconds=seconds) as rows,
        ):
            yield Archiver(ledger, rows, store, folder=Path(folder), on_progress=on_progress), store


async def gather_log(
    settings: Settings, folder: Path, wanted: WantedRows, on_rows: Callable[[int, int], None]
) -> LogFiles:
    """Bring the rows of a time to ``folder``: see :func:`understudy.retention.log_files.gather`."""
    with archive_extra():
        from understudy.adapters.postgres.prediction_log.log_snapshot import log_snapshot  # noqa: PLC0415 - needs an extra
    url = settings.database_url.get_secret_value()
    async with log_snapshot(url, timeout_seconds=settings.database_timeout_seconds) as snapshot:
        return await gather(snapshot, partial(open_store, settings), folder, wanted, on_rows)


def load_log_query() -> "Callable[[LogFiles, Path, WantedRows], AbstractContextManager[LogQuery]]":
    """Return what opens gathered rows for SQL: see :func:`understudy.adapters.archive.duckdb_log.open_log`.

    Raises:
        ArchiveUnavailable: The extra is not installed.
    """
    with archive_extra():
        from understudy.adapters.archive.duckdb_log import open_log  # noqa: PLC0415 - needs an extra
    return open_log


def open_store(settings: Settings, url: str) -> ArchiveStore:
    """Return the archive at a place; nothing is read before its first use."""
    return open_archive(url, endpoint=settings.archive_endpoint, timeout_seconds=STORE_SECONDS)
