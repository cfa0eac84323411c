"""Brings rows to where a query can read them: archived ones as they lie, live ones as files like those."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path, PurePosixPath

from understudy.core.prediction_log.archive_plan import archive_key, day_folder, fits_folder, model_folder
from understudy.errors import ArchiveDiffers, ArchiveUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.log_archive import (
    ArchivedFile,
    FilesOf,
    LogFiles,
    LogSnapshot,
    ModelDay,
    RowSource,
    WantedRows,
    WrittenFile,
)
from understudy.retention.archiver import LOG_TABLE

ROW_BYTES = 250
"""Of a live row in a file, more than most take; whether there is room is judged by it."""
OpenStore = Callable[[str], ArchiveStore]


async def gather(
    snapshot: LogSnapshot, open_store: OpenStore, folder: Path, wanted: WantedRows, on_rows: Callable[[int, int], None]
) -> LogFiles:
    """Return files with every row that is wanted, and maybe others of the same days.

    Args:
        snapshot: The log and its archive.
        open_store: Opens a place by its location.
        folder: Empty, for what has to be written or fetched.
        wanted: Which rows.
        on_rows: Told how many live rows are written, of how many.

    Raises:
        ArchiveUnavailable: A place cannot be used, or ``folder`` has no room.
        ArchiveDiffers: A file is gone, or rows are in neither place just now, or a key leads out of the archive.
        RegistryUnavailable, MigrationNeeded: The log cannot be read.
    """
    source = RowSource(LOG_TABLE, wanted.since, wanted.until, wanted.models)
    places = [(open_store(found.location), found) for found in await snapshot.files(wanted)]
    days = await snapshot.rows.days(source)
    of_rows = sum(day.rows for day in days)
    fetched = (file.size_bytes for store, found in places if store.local_root is None for file in found.files)
    _require_room(folder, ROW_BYTES * of_rows + sum(fetched))

    archived: list[Path] = []
    for number, (store, found) in enumerate(places):
        archived += await _bring(store, found, folder / f"archived-{number}")
    live: list[Path] = []
    rows_written = 0
    for day in days:
        live += await _write(snapshot, source, day, folder / "live")
        rows_written += day.rows
        on_rows(rows_written, of_rows)
    models = {day.model_name for day in days} | {file.model_name for _, found in places for file in found.files}
    return LogFiles(live, archived, {model_folder(name): name for name in models if not fits_folder(name)})


async def _bring(store: ArchiveStore, found: FilesOf, folder: Path) -> list[Path]:
    """Return where the files of one place can be read."""
    if store.local_root is not None:
        # Readers take every name=value of a path for a column: the archive's own place must not be part of it.
        folder.symlink_to(store.local_root, target_is_directory=True)  # noqa: ASYNC240 - one call
    # Not by their keys: S3 takes longer ones than a disk, and files of an earlier release may have them.
    paths = [folder / (archive_key(file.key) if store.local_root else _place_of(file)) for file in found.files]
    for path, file in zip(paths, found.files, strict=True):
        if store.local_root is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if await store.fetch(file.key, path):
                continue
        elif path.exists():
            continue
        raise ArchiveDiffers(f"{file.key} is not in {found.location}, where {file.rows:,} rows should be")
    return paths


def _place_of(file: ArchivedFile) -> str:
    return f"{day_folder(file.model_name, file.day)}/{PurePosixPath(file.key).name}"


async def _write(snapshot: LogSnapshot, source: RowSource, day: ModelDay, folder: Path) -> list[Path]:
    """Write the live rows of a model and day."""
    target = folder / day_folder(day.model_name, day.day)
    target.mkdir(parents=True)
    numbers = count()
    paths: list[Path] = []

    async def keep(file: WrittenFile) -> None:
        paths.append(file.path.rename(target / f"part-{next(numbers):05d}.parquet"))

    await snapshot.rows.export(source, day, folder, keep)
    return paths


def _require_room(folder: Path, size_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if size_bytes > free_bytes:
        raise ArchiveUnavailable(
            f"the query needs {size_bytes / 1e9:.1f} GB or so in {folder.parent}, and {free_bytes / 1e9:.1f} are free",
            hint="Ask for less with --since, --until or --model, or name a larger folder in TMPDIR.",
        )
