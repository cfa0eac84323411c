"""The way of a row from the answer to Postgres."""

from collections.abc import Callable, Collection, Generator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from understudy.core.prediction_log.row import COLUMNS, PredictionRow
from understudy.core.prediction_log.row_record import NO_RECORDS, RowRecords
from understudy.core.windows.window import Window


class PredictionSpool(Protocol):
    """Rows on local disk, written before the answer leaves."""

    def append(self, row: PredictionRow) -> bool:
        """Write one row; ``False`` when it was dropped because the spool or the disk is full (counted)."""

    def append_all(self, rows: Sequence[PredictionRow]) -> Collection[int]:
        """Write several rows at the cost of one; each that does not fit is dropped (and counted) by itself.

        Returns the places in ``rows`` of those that were dropped. A row that cannot be encoded is a defect: it is
        raised, and nothing of the others is written.
        """


class DurableSpool(PredictionSpool, Protocol):
    """A spool that says when rows survive a power cut."""

    def sync(self, on_synced: Callable[[bool], None]) -> None:
        """Call back, perhaps in another thread, when all rows that were written so far are on the disk, or cannot be.

        ``on_synced`` must not raise. A disk that hangs calls back late, or never.
        """


class SpooledBatch(NamedTuple):
    """Rows of one spool segment that follow each other: from ``start`` to ``end``, offsets in bytes of that segment."""

    spool_id: str
    segment: int
    start: int
    end: int
    rows: Sequence[bytes]
    """Lines of COPY text, one for each row, as ``core.prediction_log.row_encoding`` makes them."""
    columns: Sequence[str] = COLUMNS
    """The columns of ``rows``, as the process named them that wrote the segment."""
    damage: str = ""
    """Why ``rows`` (the bytes as found, in one or several pieces) cannot be read; empty for rows that can."""
    records: RowRecords = NO_RECORDS
    """One for each row; without fields where the segment has none."""
    ends: Sequence[int] = ()
    """The place behind each row, the last of which is ``end``."""

    def part(self, first: int, stop: int) -> "SpooledBatch":
        """Return the rows from ``first`` to before ``stop``, at least one."""
        return self._replace(
            start=self.ends[first - 1] if first else self.start,
            end=self.ends[stop - 1],
            rows=self.rows[first:stop],
            records=self.records.part(first, stop),
            ends=self.ends[first:stop],
        )


class SpoolReader(Protocol):
    """The shipping side of one spool. Its calls touch the disk; they may come from another thread than the writer's."""

    @property
    def spool_id(self) -> str:
        """A UUID, never used for two spools. It may change (:meth:`rename`)."""

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        """Return rows that follow this place, or ``None`` when there are none (yet).

        Goes on to the next segment by itself. At least one row is returned when there is one, whatever ``max_bytes``.
        Beyond ``max_rows`` come those that were written together with the last one.
        """

    def forget(self, segment: int, offset: int) -> None:
        """Free what lies before this place: it is in the log, or in the dead-letter table."""

    @property
    def forgotten(self) -> tuple[int, int]:
        """The furthest place that :meth:`forget` was called with; before that the beginning."""

    def is_beyond(self, segment: int, offset: int) -> bool:
        """Whether a place lies where this spool cannot be: an offset there was not written by a shipper of it."""

    def rename(self, spool_id: str) -> None:
        """Go on under a spool id that was never used, also in the next process."""

    @property
    def unshipped_bytes(self) -> int:
        """Bytes on disk without a :meth:`forget` so far."""

    def bytes_behind(self, segment: int, offset: int) -> int:
        """Return how many bytes on disk follow this place."""


class SpoolShelf(Protocol):
    """The spools that a worker ships: its own, and those whose worker died."""

    @property
    def own(self) -> SpoolReader:
        """The worker's own spool."""

    def orphans(self) -> Generator[SpoolReader, None, None]:
        """Yield each spool without a worker, locked until the next step; an empty one is removed by then.

        Close the iterator (``contextlib.closing``) when leaving it early.
        """


class WriteOutcome(Enum):
    """What became of a batch; nothing was written unless ``WRITTEN``."""

    WRITTEN = "written"
    OFFSET_MOVED = "offset_moved"
    """The spool's committed offset is not where the batch starts: another shipper has shipped these rows."""
    REJECTED = "rejected"
    """The database refuses the content of at least one row."""


class WriteResult(NamedTuple):
    """An outcome, and for ``REJECTED`` what the database said."""

    outcome: WriteOutcome
    why: str = ""


class PredictionStore(Protocol):
    """``PredictionLog`` in Postgres."""

    async def committed(self, spool_id: str) -> tuple[int, int]:
        """Return ``(segment, offset)`` up to which the spool's rows are in the log; ``(0, 0)`` for a new spool.

        Asking keeps it known for another year.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        """Insert the rows, replace the windows and move the spool's offset to ``batch.end`` in one transaction.

        Raises:
            RegistryUnavailable: Nothing is known to be written (also when a commit's outcome is unknown): read
                :meth:`committed` again.
            MigrationNeeded: The tables are not there, or not with these columns.
        """

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        """Put one poison row (a batch of one) into the dead-letter table and move the offset past it.

        Nothing is done but to return ``OFFSET_MOVED`` when the spool's committed offset is not where the batch starts.

        Raises:
            RegistryUnavailable: As :meth:`write`.
            MigrationNeeded: As :meth:`write`.
        """

    async def close(self) -> None:
        """Close the connections."""
