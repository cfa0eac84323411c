"""Tables in files: CSV with a header, and Parquet where its library is installed."""

import csv
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, Protocol

from understudy import DISTRIBUTION
from understudy.adapters.files.refusal import ColumnCheck, FileRefused, unreadable
from understudy.ports.experiments.outcome_store import FileRow

PARQUET = (".parquet", ".pq")
"""Suffixes of Parquet files; everything else is CSV."""
_HEADER_HINT = "Its first line names the columns, divided by commas."


class TableFile(Protocol):
    """An open file; ``position`` of ``size`` is the progress of reading it."""

    size: int
    columns: Sequence[str]

    @property
    def position(self) -> int:
        """How far the rows were read."""

    def rows(self, columns: Collection[str] | None = None) -> Iterator[FileRow]:
        """Yield each row once, in the order of the file; of a wide table only some columns, where that is cheaper.

        Raises:
            FileRefused: The rest of the file cannot be read.
        """


def open_table(path: Path, check: ColumnCheck) -> AbstractContextManager[TableFile]:
    """Open a file by the end of its name: ``.parquet`` (or ``.pq``), and everything else as CSV.

    Raises:
        FileRefused: It cannot be opened, ``check`` refuses its columns, or it needs a library that is not installed.
    """
    if path.suffix.lower() not in PARQUET:
        return open_csv(path, check)
    try:
        # Only here: the library is an extra, and takes half a second.
        from understudy.adapters.files.parquet import open_parquet  # noqa: PLC0415
    except ModuleNotFoundError as problem:
        raise FileRefused(
            f"{path} is Parquet, and {problem.name} is not installed",
            f"Install the extra that reads it, pip install '{DISTRIBUTION}[files]', or write the file as CSV.",
        ) from None
    return open_parquet(path, check)


@contextmanager
def open_csv(path: Path, check: ColumnCheck) -> Iterator[TableFile]:
    """Open a CSV file in UTF-8, whose first line names its columns.

    Raises:
        FileRefused: As :func:`open_table`.
    """
    try:
        raw = path.open("rb")
    except OSError as problem:
        raise unreadable(path, problem) from None
    with raw:
        yield _CsvFile(path, raw, check)


class _CsvFile:
    def __init__(self, path: Path, raw: BinaryIO, check: ColumnCheck) -> None:
        self.size = path.stat().st_size
        self._raw = raw
        # Bytes that are not UTF-8 become lone surrogates, which are refused in their row.
        self._reader = csv.DictReader(TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline=""))
        try:
            self.columns = self._reader.fieldnames or ()
        except csv.Error as problem:
            raise FileRefused(f"{path}: its first line is not a CSV header: {problem}", _HEADER_HINT) from None
        check(path, self.columns)

    @property
    def position(self) -> int:
        return self._raw.tell()

    def rows(self, columns: Collection[str] | None = None) -> Iterator[FileRow]:  # noqa: ARG002 - a line is read whole
        while True:
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as problem:
                yield FileRow(self._reader.line_num + 1, {}, f"is not a CSV row: {problem}")
            else:
                yield FileRow(self._reader.line_num, cells)
