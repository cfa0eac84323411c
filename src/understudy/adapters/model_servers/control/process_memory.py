"""What the process of a model server takes of this machine's memory, with the processes that it has started."""

import asyncio
import os
from pathlib import Path
from typing import Final

from understudy.core.loading.memory import ProcessUse

PROC: Final = Path("/proc")


class ProcessMemory:
    """Measures the process whose number is in the file ``pid_file``; ``None``: nothing is measured."""

    def __init__(self, pid_file: Path | None, proc: Path = PROC) -> None:
        self._pid_file = pid_file
        self._proc = proc

    async def use(self) -> ProcessUse | None:
        """Return its resident memory; ``None``: there is no such process, or the system does not say."""
        return None if self._pid_file is None else await asyncio.to_thread(self._read, self._pid_file)

    def _read(self, pid_file: Path) -> ProcessUse | None:
        try:
            pid = int(pid_file.read_text())
            pages, started = self._pages_of(pid), self._started(pid)
        except (OSError, ValueError, IndexError):
            return None
        return ProcessUse(pages * os.sysconf("SC_PAGE_SIZE"), f"{pid} {started}")

    def _started(self, pid: int) -> str:
        """Return when a process was started, in the clock's ticks since the machine was."""
        # The name, in parentheses, may have blanks and parentheses itself.
        return (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]

    def _pages_of(self, pid: int) -> int:
        pages = int((self._proc / str(pid) / "statm").read_text().split()[1])
        for task in (self._proc / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                pages += self._pages_of(int(child))
        return pages
