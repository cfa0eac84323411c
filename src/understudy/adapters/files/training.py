"""Tables of training data, from CSV and Parquet files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.tables import PARQUET, TableFile, open_table
from understudy.ports.experiments.outcome_store import FileRow


class TrainingFile:
    """An open table; ``position`` of ``size`` is the progress of reading it."""

    def __init__(self, table: TableFile, *, is_csv: bool) -> None:
        self._table = table
        self._is_csv = is_csv
        self.size = table.size
        self.columns = table.columns

    @property
    def position(self) -> int:
        """How far the rows were read."""
        return self._table.position

    def rows(self, columns: Sequence[str]) -> Iterator[FileRow]:
        """Yield each row once, with these columns at least; null is ``None``, in CSV an empty cell.

        Raises:
            FileRefused: The rest of the file cannot be read.
        """
        rows = self._table.rows(columns)
        return map(_with_nulls, rows) if self._is_csv else rows


@contextmanager
def open_training_file(path: Path) -> Iterator[TrainingFile]:
    """Open a file by the end of its name: ``.parquet`` (or ``.pq``), and everything else as CSV with a header.

    Raises:
        FileRefused: It cannot be opened, has no columns or one twice, or needs a library that is not installed.
    """
    with open_table(path, _check_columns) as table:
        yield TrainingFile(table, is_csv=path.suffix.lower() not in PARQUET)


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if not columns:
        raise FileRefused(f"{path} is empty", "Name a file with a header and rows.")
    twice = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
    if twice is not None:
        raise FileRefused(f"{path} has the column {twice!r} twice", "Give each column a name of its own.")


def _with_nulls(row: FileRow) -> FileRow:
    if row.problem:
        return row
    if None in row.cells or None in row.cells.values():
        return row._replace(problem="has more or fewer cells than the first line")
    return row._replace(cells={name: cell if cell != "" else None for name, cell in row.cells.items()})
