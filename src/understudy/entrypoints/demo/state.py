"""The demo's folder: its data, its logs, and who is using it."""

import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any, TextIO

import orjson

from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.entrypoints.demo.refusal import DemoRefused

_LOCK, _RUNNING = "demo.lock", "demo.json"
_ATTEMPTS, _PAUSE_SECONDS = 3, 0.05
"""A reader of the folder holds the lock for microseconds; a demo holds it until it ends."""


class StateFolder:
    """A folder that one demo at a time holds. The kernel frees it when that demo dies, however it does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder.absolute()
        self._lock: TextIO | None = None

    @property
    def postgres(self) -> Path:
        """Where the embedded Postgres keeps its cluster."""
        return self.path / "postgres"

    @property
    def proxy(self) -> Path:
        """Where the proxy keeps its spool and its policy snapshot."""
        return self.path / "proxy"

    @property
    def logs(self) -> Path:
        """The output of each process."""
        return self.path / "logs"

    def hold(self) -> None:
        """Take the folder.

        Raises:
            DemoRefused: Another demo has it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("a")
        except OSError as problem:
            raise DemoRefused(
                f"the state folder cannot be used: {problem}", "Name another one with --state-dir."
            ) from None
        for attempt in range(_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(_PAUSE_SECONDS * (attempt + 1))
            else:
                self._lock = lock
                return
        lock.close()
        raise self._held_by_another()

    def _held_by_another(self) -> DemoRefused:
        running = read_running(self.path)
        where = f" at {running['proxy']}, process {running['pids']['demo']}" if running else ""
        return DemoRefused(
            f"a demo is running in {self.path} already{where}",
            "Use that one, stop it with Ctrl-C, or start another with --state-dir.",
        )

    def clear(self) -> None:
        """Delete what demos left here, and nothing else that may lie in the folder."""
        EmbeddedPostgres(self.postgres).remove()
        for folder in (self.proxy, self.logs):
            shutil.rmtree(folder, ignore_errors=True)

    def prepare(self) -> None:
        """Make the folders of a start."""
        for folder in (self.proxy, self.logs):
            folder.mkdir(exist_ok=True)

    def announce(self, running: dict[str, Any]) -> None:
        """Write down where everything is, for other commands run beside the demo."""
        unfinished = self.path / f"{_RUNNING}.new"
        unfinished.unlink(missing_ok=True)
        # It may hold the demo's key.
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(orjson.dumps(running))
        unfinished.replace(self.path / _RUNNING)

    def release(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            (self.path / _RUNNING).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


def read_running(folder: Path) -> dict[str, Any] | None:
    """Return where everything of the demo in ``folder`` is, or ``None`` when none runs there."""
    try:
        with (folder / _LOCK).open() as lock:
            if not _is_held(lock):
                return None
        running: dict[str, Any] = orjson.loads((folder / _RUNNING).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return running


def _is_held(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
