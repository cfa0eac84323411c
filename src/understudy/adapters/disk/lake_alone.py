"""Which spools have rows that are to be in the lake and nowhere else: marks beside the spools, for the next process.

While rows go to the lake alone, the place of the shipper to Postgres says nothing of where rows are. A process that
ships to Postgres alone would give such rows back to the disk as shipped; so it has to know that they are there.
"""

from contextlib import suppress
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles


class LakeAloneMarks:
    """Marks of the spools below a folder, by the names of theirs.

    Args:
        state_dir: Of the process.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "lake-alone"
        self._spools = state_dir / "spool"

    def mark(self, spool: str) -> None:
        """Mark a spool, before its first row; the mark survives a power cut.

        Raises:
            OSError: The folder cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / spool).touch()
        for folder in (self._folder, self._folder.parent):
            DiskFiles().sync_folder(folder)

    def unmark(self, spool: str) -> None:
        """Take a mark back once all rows of the spool are in the lake."""
        with suppress(OSError):
            (self._folder / spool).unlink(missing_ok=True)

    def left(self) -> list[str]:
        """Return the spools that are marked and still there."""
        with suppress(FileNotFoundError):
            return sorted(mark.name for mark in self._folder.iterdir() if (self._spools / mark.name).is_dir())
        return []
