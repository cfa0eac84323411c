"""A run of the archiver that is killed at a chosen moment, by itself: nothing after that moment happens.

Arguments: URL of the database, folder of the archive, and the moment: a number, or a call such as ``after:detach``,
``before:put`` or ``never``. Every call of a port is two moments: before it, and after it.
"""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.postgres.prediction_log.archive_ledger import open_ledger
from understudy.adapters.postgres.prediction_log.archive_rows import open_archive_rows
from understudy.retention.archiver import Ages, Archiver, Moved

AGES = Ages(after_seconds=86_400.0, inputs_seconds=86_400.0)
_ASKED_ONLY = ("alone", "inspect", "location", "local_root")


class Moments:
    """Counts the moments of a run, and ends it at one of them.

    Args:
        at: How many moments a run lives, or the name of its last one.
        end: Does not return.
    """

    def __init__(self, at: int | str, end: Callable[[], None]) -> None:
        self.passed = 0
        self._at = at
        self._end = end

    def pass_one(self, name: str) -> None:
        """Let a moment pass, or end."""
        self.passed += 1
        if self._at in (self.passed, name):
            self._end()


class Mortal:
    """A port whose calls are moments; everything else is the port's own."""

    def __init__(self, inner: Any, moments: Moments) -> None:
        self._inner = inner
        self._moments = moments

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return value if name in _ASKED_ONLY else self._watched(name, value)

    def _watched(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(*arguments: Any) -> Any:
            self._moments.pass_one(f"before:{name}")
            came = await call(*arguments)
            self._moments.pass_one(f"after:{name}")
            return came

        return watched


async def archive(url: str, store: Any, moments: Moments, *, now: float | None = None) -> list[Moved]:
    """Run the archiver to its end, or to a moment."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_ledger(url, timeout_seconds=10) as ledger,
            open_archive_rows(url, timeout_seconds=10) as rows,
        ):
            archiver = Archiver(
                Mortal(ledger, moments),
                Mortal(rows, moments),
                Mortal(store, moments),
                folder=Path(folder),
                on_progress=lambda _: None,
            )
            return await archiver.run(time.time() if now is None else now, AGES)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    moment = sys.argv[3]
    asyncio.run(
        archive(
            sys.argv[1],
            FolderArchive(Path(sys.argv[2])),
            Moments(int(moment) if moment.isdigit() else moment, _kill),
        )
    )
