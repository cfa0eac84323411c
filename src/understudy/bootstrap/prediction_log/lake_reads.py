"""What reads the log from the lake, where the settings say so; the libraries are imported with the first question."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from understudy import DISTRIBUTION
from understudy.errors import LakeUnavailable
from understudy.settings import Settings

if TYPE_CHECKING:  # need an extra, or are of no use to a command that reads no log
    from understudy.adapters.archive.duckdb_log import LogQuery
    from understudy.adapters.lake.reading.question import Lake
    from understudy.adapters.lake.reading.snapshot import LakeReader
    from understudy.ports.prediction_log.archive_store import ArchiveStore
    from understudy.ports.prediction_log.log_archive import WantedRows

STORE_SECONDS = 30.0
"""Longest time of one request to S3, and of one statement to the catalogue."""
QUERY_SECONDS = 600.0
"""Longest time in which rows are copied for a person's own SQL."""


class LakePlace(NamedTuple):
    """Where the lake is."""

    url: str
    endpoint: str | None
    is_alone: bool
    """Whether Postgres has none of the rows, but those with sampled inputs."""


def lake_place_of(settings: Settings) -> LakePlace | None:
    """Return where reports read the log, ``None`` for Postgres."""
    if settings.log_reads == "postgres":
        return None
    assert settings.lake_url is not None, "settings refuse to read a lake without a place"
    return LakePlace(settings.lake_url, settings.lake_endpoint, settings.is_lake_alone)


def open_lake(place: LakePlace, database_url: str, timeout_seconds: float) -> "Lake":
    """Return what opens questions to the lake; nothing is read before the first one.

    Raises:
        LakeUnavailable: The extra is not installed.
    """
    # Late: it brings numpy, which most commands do without.
    from understudy.adapters.telemetry.process_usage import memory_limit_bytes  # noqa: PLC0415

    with lake_extra():
        from understudy.adapters.lake.reading.question import Lake  # noqa: PLC0415 - needs an extra
    reader = _reader(place, database_url)
    return Lake(reader, timeout_seconds=timeout_seconds, limit_bytes=memory_limit_bytes())


@contextmanager
def open_lake_query(
    settings: Settings, folder: Path, wanted: "WantedRows", on_rows: Callable[[int], None]
) -> "Iterator[LogQuery]":
    """Open the lake's rows for SQL: see :func:`understudy.adapters.lake.reading.log_query.open_lake_log`."""
    with lake_extra():
        from understudy.adapters.lake.reading.log_query import open_lake_log  # noqa: PLC0415 - needs an extra
    place = lake_place_of(settings)
    assert place is not None, "the caller asked whether the lake is read"
    reader = _reader(place, settings.database_url.get_secret_value())
    with open_lake_log(reader, folder, wanted, QUERY_SECONDS, on_rows) as log:
        yield log


def _reader(place: LakePlace, database_url: str) -> "LakeReader":
    from understudy.adapters.archive.open import open_archive  # noqa: PLC0415 - as said above

    with lake_extra():
        from understudy.adapters.lake.reading.snapshot import LakeReader  # noqa: PLC0415 - needs an extra
    store = open_archive(place.url, endpoint=place.endpoint, timeout_seconds=STORE_SECONDS)
    return LakeReader(database_url, table_location(store), endpoint=place.endpoint, timeout_seconds=STORE_SECONDS)


def table_location(store: "ArchiveStore") -> str:
    """Return the place of a store as the table's library writes it."""
    return store.location if store.local_root is None else f"file://{store.local_root}"


@contextmanager
def lake_extra() -> Iterator[None]:
    """Say which extra is missing.

    Raises:
        LakeUnavailable: One of its libraries is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        hint = f"Install the extra of the lake: pip install '{DISTRIBUTION}[lake]'."
        raise LakeUnavailable(f"{problem.name} is not installed", hint=hint) from None
