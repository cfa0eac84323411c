"""Files of outcome events: CSV with a header, and Parquet where its library is installed."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.tables import TableFile, open_table

_NEEDED = ("event_id", "model", "name", "value", "occurred_at")
_SUBJECTS = ("entity_id", "prediction_id")
_COLUMNS_HINT = f"The columns are {', '.join(_NEEDED)}, and {' or '.join(_SUBJECTS)} or both."


def open_outcome_file(path: Path) -> AbstractContextManager[TableFile]:
    """Open a file by the end of its name: ``.parquet`` (or ``.pq``), and everything else as CSV.

    Raises:
        FileRefused: It cannot be opened, lacks a column, or needs a library that is not installed.
    """
    return open_table(path, check_columns)


def check_columns(path: Path, columns: Collection[str]) -> None:
    """Check that the columns are sufficient for events.

    Raises:
        FileRefused: Naming those that are missing.
    """
    missing = [name for name in _NEEDED if name not in columns]
    if not any(name in columns for name in _SUBJECTS):
        missing.append(" or ".join(_SUBJECTS))
    if missing:
        raise FileRefused(f"{path} has no column {', '.join(missing)}", _COLUMNS_HINT)
