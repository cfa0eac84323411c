"""Tables in Parquet files. Its import fails without the extra ``files``; nothing else needs it."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from pyarrow import ArrowException, RecordBatch, parquet, timestamp, types

from understudy.adapters.files.refusal import ColumnCheck, FileRefused, unreadable
from understudy.ports.experiments.outcome_store import FileRow

_ROWS_AT_ONCE = 1_000


@contextmanager
def open_parquet(path: Path, check: ColumnCheck) -> Iterator["_ParquetRows"]:
    """Open a Parquet file.

    Raises:
        FileRefused: It cannot be read, is not Parquet, or ``check`` refuses its columns.
    """
    try:
        opened = parquet.ParquetFile(path)
    except OSError as problem:
        raise unreadable(path, problem) from None
    except ArrowException as problem:
        raise FileRefused(f"{path} is not a Parquet file: {problem}", "Write it again, or as CSV.") from None
    with opened:
        check(path, opened.schema_arrow.names)
        yield _ParquetRows(path, opened)


class _ParquetRows:
    def __init__(self, path: Path, opened: Any) -> None:
        self._path = path
        self._opened = opened
        self.columns: Sequence[str] = opened.schema_arrow.names
        self.size: int = opened.metadata.num_rows
        self.position = 0

    def rows(self, columns: Collection[str] | None = None) -> Iterator[FileRow]:
        try:
            for batch in self._opened.iter_batches(_ROWS_AT_ONCE, columns=None if columns is None else list(columns)):
                for cells in _in_microseconds(batch).to_pylist():
                    self.position += 1
                    yield FileRow(self.position, {name: _plain(value) for name, value in cells.items()})
        except (ArrowException, OSError, ValueError, OverflowError) as problem:
            # The last two: text that is not UTF-8, and times outside of the calendar.
            said = f"{self._path} cannot be read after row {self.position:,}: {problem}"
            raise FileRefused(said, "Write it again, or as CSV.") from None


def _in_microseconds(batch: Any) -> Any:
    """Return the rows with times in microseconds, as ``datetime`` has them; many tools write nanoseconds."""
    columns = [
        column.cast(timestamp("us", column.type.tz), safe=False)
        if types.is_timestamp(column.type) and column.type.unit == "ns"
        else column
        for column in batch.columns
    ]
    return RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(value: Any) -> Any:
    """Return a value as a CSV file or a JSON body has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value
