"""The error for a file that cannot be read."""

from collections.abc import Callable, Sequence
from pathlib import Path

ColumnCheck = Callable[[Path, Sequence[str]], None]
"""Raises ``FileRefused`` unless the columns are sufficient."""


class FileRefused(Exception):
    """The file cannot be read at all."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.next_step = next_step


def unreadable(path: Path, problem: OSError) -> FileRefused:
    """Return the error for a file that cannot be opened."""
    return FileRefused(f"{path} cannot be read: {problem.strerror or problem}", "Name a CSV or Parquet file.")
