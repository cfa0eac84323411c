"""The rows of ``PredictionLog`` on their way into files, and the table that says how far each month has come."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from understudy.core.prediction_log.archive_plan import ArchiveState, Fingerprint, LogPartition


class Archive(NamedTuple):
    """A row of ``LogArchive``."""

    id: int
    partition_name: str
    start: float
    end: float
    location: str
    state: ArchiveState
    attempt: int
    """How often its files were begun; part of their names."""
    fingerprint: Fingerprint | None
    """Of what the files hold; ``None`` while they are written."""
    detached_as: str | None
    """The table that the month became; it is there while the state is ``DETACHED``."""


class FileName(NamedTuple):
    """An object that may be in the archive."""

    key: str
    model_name: str
    day: str
    """``2026-08-01``, in UTC."""


class ArchivedFile(NamedTuple):
    """An object of the archive, as it was written."""

    key: str
    model_name: str
    day: str
    rows: int
    size_bytes: int
    sha256: str


class WrittenFile(NamedTuple):
    """A Parquet file on local disk."""

    path: Path
    size_bytes: int
    sha256: str
    fingerprint: Fingerprint


class RowSource(NamedTuple):
    """Rows of one table between two moments (seconds since the epoch; ``until`` is excluded)."""

    table: str
    since: float
    until: float
    models: tuple[str, ...] | None = None
    """Only of these; ``None``: of all."""


class ModelDay(NamedTuple):
    """The rows of one model on one day, in UTC."""

    model_name: str
    day: str
    version_ids: tuple[int, ...]
    rows: int


OnFile = Callable[[WrittenFile], Awaitable[None]]


class LogRows(Protocol):
    """Reads rows and writes them into Parquet files; memory is bounded, whatever a day holds.

    Raises ``RegistryUnavailable`` when Postgres is away or has sent nothing for long, ``MigrationNeeded``.
    """

    async def days(self, source: RowSource) -> Sequence[ModelDay]:
        """Count the rows of each model and day, ordered by both."""

    async def export(self, source: RowSource, day: ModelDay, folder: Path, on_file: OnFile) -> None:
        """Write the rows of a model and day, ordered by time and id, into files of at most a million rows.

        Each file is given to ``on_file`` when it is complete, and may be deleted once that returns.
        """

    def inspect(self, path: Path) -> WrittenFile:
        """Read a whole Parquet file, every column of it; blocks.

        Raises:
            ArchiveDiffers: It is not readable.
        """


class ArchiveLedger(Protocol):
    """The state of every month's archive, each change of it one transaction.

    All writes are those of one attempt: ``ArchiveBusy`` when another run has begun the next one. Other errors are those
    of :class:`LogRows`.
    """

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Hold the archive's lock: one run at a time.

        Raises:
            ArchiveBusy: Another run holds it, and did not end within ten seconds.
        """

    async def partitions(self) -> Sequence[LogPartition]:
        """Return the months that PredictionLog has."""

    async def open_archives(self) -> Sequence[Archive]:
        """Return those that have not come to their end, oldest month first."""

    async def begin(self, partition: LogPartition, location: str) -> Archive:
        """Begin a month's way."""

    async def files(self, archive: Archive) -> Sequence[ArchivedFile]:
        """Return its files that are known to be whole, by key."""

    async def names(self, archive: Archive) -> Sequence[FileName]:
        """Return every object of it that may exist, whole or not."""

    async def begin_export(self, archive: Archive) -> Archive:
        """Begin the next attempt: no file is known any more. What the last one named must be deleted before."""

    async def name_file(self, archive: Archive, name: FileName) -> None:
        """Say that an object is about to be written."""

    async def add_file(self, archive: Archive, file: ArchivedFile) -> None:
        """Say that an object which was named is written."""

    async def end_export(self, archive: Archive, fingerprint: Fingerprint) -> Archive:
        """Say that all files are written, and what they hold together."""

    async def verified(self, archive: Archive) -> Archive:
        """Say that all files were read back."""

    async def count(self, archive: Archive) -> Fingerprint:
        """Return what the month's table holds now."""

    async def detach(self, archive: Archive) -> Archive | None:
        """Take the month out of PredictionLog and say so, in one transaction; ``None`` when its rows have changed.

        Waits for readers of the log for a while, and blocks other sessions for at most 1.5 s at a time.

        Raises:
            ArchiveBusy: They did not end.
        """

    async def drop(self, archive: Archive) -> Archive:
        """Let the table go that the month became, and say so, in one transaction. Waits as :meth:`detach`.

        The table is dropped at once under a login that owns the log, and otherwise by :meth:`drop_due` days later.
        """

    async def drop_due(self) -> int:
        """Drop the tables of earlier months whose time has come, and return how many."""

    async def succeeded(self) -> None:
        """Note that a run came to its end."""


class WantedRows(NamedTuple):
    """Which rows a query is to see; times in seconds since the epoch, ``until`` excluded."""

    since: float
    until: float
    models: tuple[str, ...] | None = None


class LogFiles(NamedTuple):
    """Files on local disk, each below ``model=…/day=…``."""

    live: Sequence[Path]
    archived: Sequence[Path]
    names: Mapping[str, str] = MappingProxyType({})
    """The model of each ``model=…`` folder that does not say it, since the name is too long for one."""


class QueryRefused(Exception):
    """A SQL statement over the log cannot be run; the message says why."""


class FilesOf(NamedTuple):
    """Files of one archive at one location."""

    location: str
    files: Sequence[ArchivedFile]


class LogSnapshot(Protocol):
    """The log and what is archived of it at one moment: every row is in one of the two, and in one only.

    While it is open no month can be taken out of the log. Errors are those of :class:`LogRows`.
    """

    @property
    def rows(self) -> LogRows:
        """What the log holds at this moment."""

    async def files(self, wanted: WantedRows) -> Sequence[FilesOf]:
        """Return the files that may hold such rows.

        Raises:
            ArchiveDiffers: Rows of that time are in neither just now, because files that were lost are written anew.
        """
