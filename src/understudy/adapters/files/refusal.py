"""What is said of a file that cannot be read."""

from collections.abc import Callable, Sequence
from pathlib import Path

ColumnCheck = Callable[[Path, Sequence[str]], None]
"""Goes on when the columns will do; raises ``FileRefused``."""


class FileRefused(Exception):
    """The file cannot be read at all."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.next_step = next_step


def unreadable(path: Path, problem: OSError) -> FileRefused:
    """Return what to say of a file that cannot be opened."""
    return FileRefused(f"{path} cannot be read: {problem.strerror or problem}", "Name a CSV or Parquet file.")
