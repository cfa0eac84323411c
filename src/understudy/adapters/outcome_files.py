"""Files of outcome events: CSV with a header, and Parquet where its library is installed."""

import csv
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, Protocol

from understudy.ports import FileRow

_NEEDED = ("event_id", "model", "name", "value", "occurred_at")
_SUBJECTS = ("entity_id", "prediction_id")
_COLUMNS_HINT = f"The columns are {', '.join(_NEEDED)}, and {' or '.join(_SUBJECTS)} or both."


class FileRefused(Exception):
    """The file cannot be read at all."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.next_step = next_step


class OutcomeFile(Protocol):
    """An open file; ``position`` of ``size`` says how far its rows were read."""

    size: int

    @property
    def position(self) -> int:
        """How far the rows were read."""
        ...

    def rows(self) -> Iterator[FileRow]:
        """Yield each row once, in the order of the file."""
        ...


def open_outcome_file(path: Path) -> AbstractContextManager[OutcomeFile]:
    """Open a file by the end of its name: ``.parquet`` (or ``.pq``), and everything else as CSV.

    Raises:
        FileRefused: It cannot be opened, lacks a column, or needs a library that is not there.
    """
    if path.suffix.lower() not in (".parquet", ".pq"):
        return open_csv(path)
    try:
        # Only here: the library is an extra, and takes half a second.
        module = import_module("understudy.adapters.parquet_rows")
    except ModuleNotFoundError as problem:
        raise FileRefused(
            f"{path} is Parquet, and {problem.name} is not installed",
            "Install the extra that reads it, pip install 'understudy[files]', or write the file as CSV.",
        ) from None
    opened: AbstractContextManager[OutcomeFile] = module.open_parquet(path)
    return opened


@contextmanager
def open_csv(path: Path) -> Iterator[OutcomeFile]:
    """Open a CSV file in UTF-8, whose first line names its columns.

    Raises:
        FileRefused: As :func:`open_outcome_file`.
    """
    try:
        raw = path.open("rb")
    except OSError as problem:
        raise unreadable(path, problem) from None
    with raw:
        yield _CsvFile(path, raw)


def unreadable(path: Path, problem: OSError) -> FileRefused:
    """Return what to say of a file that cannot be opened."""
    return FileRefused(f"{path} cannot be read: {problem.strerror}", "Name a CSV or Parquet file of outcome events.")


def check_columns(path: Path, columns: Collection[str]) -> None:
    """Go on when the columns can make events.

    Raises:
        FileRefused: Naming those that are missing.
    """
    missing = [name for name in _NEEDED if name not in columns]
    if not any(name in columns for name in _SUBJECTS):
        missing.append(" or ".join(_SUBJECTS))
    if missing:
        raise FileRefused(f"{path} has no column {', '.join(missing)}", _COLUMNS_HINT)


class _CsvFile:
    def __init__(self, path: Path, raw: BinaryIO) -> None:
        self.size = path.stat().st_size
        self._raw = raw
        # What is no UTF-8 becomes half a surrogate pair, which is refused in the row where it stands.
        self._reader = csv.DictReader(TextIOWrapper(raw, "utf-8-sig", errors="surrogateescape", newline=""))
        check_columns(path, self._reader.fieldnames or ())

    @property
    def position(self) -> int:
        return self._raw.tell()

    def rows(self) -> Iterator[FileRow]:
        while True:
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as problem:
                yield FileRow(self._reader.line_num + 1, {}, f"is no row of a CSV file: {problem}")
            else:
                yield FileRow(self._reader.line_num, cells)
