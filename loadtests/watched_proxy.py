"""The proxy itself, in a process that says on SIGUSR1 how many asyncio tasks it has: in the file TASKS_FILE names."""

import asyncio
import os
import signal
from pathlib import Path
from types import FrameType

from understudy.entrypoints.cli.main import main

TASKS_FILE = "LOADTESTS_TASKS_FILE"


def tell(_number: int, _frame: FrameType | None) -> None:
    """Write the number beside the file and move it there, so that nobody reads half of it."""
    path = Path(os.environ[TASKS_FILE])
    written = path.with_suffix(".new")
    written.write_text(str(len(asyncio.all_tasks())))
    written.replace(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    main()
