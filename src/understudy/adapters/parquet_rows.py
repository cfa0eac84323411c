"""Parquet files of outcome events. Its import fails where the library is not installed; only files need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from pyarrow import ArrowException, parquet

from understudy.adapters.outcome_files import FileRefused, check_columns, unreadable
from understudy.core.outcomes import MAX_EVENTS
from understudy.ports import FileRow


@contextmanager
def open_parquet(path: Path) -> Iterator["_ParquetRows"]:
    """Open a Parquet file.

    Raises:
        FileRefused: It cannot be read, is no Parquet, or lacks a column.
    """
    try:
        opened = parquet.ParquetFile(path)
    except OSError as problem:
        raise unreadable(path, problem) from None
    except ArrowException as problem:
        raise FileRefused(f"{path} is no Parquet file: {problem}", "Write it again, or as CSV.") from None
    with opened:
        check_columns(path, opened.schema_arrow.names)
        yield _ParquetRows(opened)


class _ParquetRows:
    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self.size: int = opened.metadata.num_rows
        self.position = 0

    def rows(self) -> Iterator[FileRow]:
        for batch in self._opened.iter_batches(MAX_EVENTS):
            for cells in batch.to_pylist():
                self.position += 1
                yield FileRow(self.position, {name: _plain(value) for name, value in cells.items()})


def _plain(value: Any) -> Any:
    """Return a value as a CSV file or a call would have it."""
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value
