"""Opens what erases an entity, the ledger in Postgres and the archive's files, for the length of a command."""

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from understudy.adapters.archive.open import archive_extra, open_archive
from understudy.adapters.archive.run_folder import run_folder
from understudy.adapters.postgres.prediction_log.entity_erasure import PostgresErasureLedger, open_erasures
from understudy.adapters.postgres.prediction_log.lake_erasure import PostgresLakeErasureLedger
from understudy.bootstrap.prediction_log.archive import open_store
from understudy.bootstrap.prediction_log.lake_reads import STORE_SECONDS, lake_extra, table_location
from understudy.errors import ArchiveUnavailable
from understudy.ports.prediction_log.entity_erasure import FileEraser
from understudy.retention.entity_eraser import EntityEraser, Tell
from understudy.retention.lake_eraser import LakeEraser
from understudy.settings import Settings


@asynccontextmanager
async def open_eraser(settings: Settings, archives: Sequence[str], on_progress: Tell) -> AsyncIterator[EntityEraser]:
    """Open what erases entities, under the command's own login; files of an earlier run that was killed are deleted.

    Args:
        settings: Name the database, and the archive that is used by default.
        archives: Further places of archived months, as ``db archive --to`` had them.
        on_progress: See :class:`EntityEraser`.

    Raises:
        ArchiveUnavailable: A place cannot be used.
        RegistryUnavailable: Postgres does not answer.
    """
    places = [*([] if settings.archive_url is None else [settings.archive_url]), *archives]
    files = _file_eraser()
    stores = [] if files is None else [open_store(settings, place) for place in places]
    url = settings.database_url.get_secret_value()
    with run_folder("understudy-erasure-") as folder:
        async with open_erasures(url, timeout_seconds=settings.database_timeout_seconds) as ledger:
            by_location = {store.location: store for store in stores}
            with ExitStack() as stack:
                lake = _open_lake(settings, ledger, folder, on_progress, stack)
                yield EntityEraser(ledger, files, by_location, lake, folder=folder, on_progress=on_progress)


def _open_lake(
    settings: Settings, ledger: PostgresErasureLedger, folder: Path, on_progress: Tell, stack: ExitStack
) -> LakeEraser | None:
    """Return what erases from the lake, under the command's own login; ``None`` where the settings name none."""
    if settings.lake_url is None:
        return None
    with lake_extra():
        from understudy.adapters.lake.iceberg_table import IcebergTable  # noqa: PLC0415 - needs an extra
        from understudy.adapters.lake.rewriting import IcebergRewrites  # noqa: PLC0415 - needs an extra
    store = open_archive(settings.lake_url, endpoint=settings.lake_endpoint, timeout_seconds=STORE_SECONDS)
    url, place = settings.database_url.get_secret_value(), table_location(store)
    table = IcebergTable(url, place, endpoint=settings.lake_endpoint, timeout_seconds=STORE_SECONDS)
    stack.callback(table.close)
    rewrites = IcebergRewrites(table)
    return LakeEraser(
        ledger, PostgresLakeErasureLedger(ledger), rewrites, store, folder=folder, on_progress=on_progress
    )


def _file_eraser() -> FileEraser | None:
    """Return what writes Parquet; ``None`` without the extra, which installations without an archive need not have."""
    try:
        with archive_extra():
            from understudy.adapters.archive.parquet_erasure import ParquetEraser  # noqa: PLC0415 - needs an extra
    except ArchiveUnavailable:
        return None
    return ParquetEraser()
