"""The demo's folder: its data, its logs, and who is using it."""

import fcntl
import os
import re
import shutil
import time
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, TextIO

import orjson

from understudy.adapters.embedded.cluster import USER
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.entrypoints.demo.refusal import DemoRefused
from understudy.entrypoints.demo.running import LOCK, RUNNING, read_running

_OWNER_ONLY = 0o600
_PASSWORD, _PASSWORD_BYTES = re.compile(r"[A-Za-z0-9_-]{32}"), 24
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
    def artifacts(self) -> Path:
        """What agents read the example models from."""
        return self.path / "artifacts"

    @property
    def stages(self) -> Path:
        """A folder for each agent, where it copies artifacts to and its server loads them from."""
        return self.path / "stages"

    @property
    def logs(self) -> Path:
        """The output of each process."""
        return self.path / "logs"

    @property
    def pass_file(self) -> Path:
        """The embedded Postgres' password, as a file that ``psql`` and other clients take."""
        return self.path / "pgpass"

    def hold(self) -> None:
        """Take the folder.

        Raises:
            DemoRefused: Another demo has it, or it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / LOCK).open("a")
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
        for folder in (self.proxy, self.logs, self.artifacts, self.stages):
            shutil.rmtree(folder, ignore_errors=True)
        self.pass_file.unlink(missing_ok=True)

    def prepare(self) -> None:
        """Make the folders of a start."""
        for folder in (self.proxy, self.logs):
            folder.mkdir(exist_ok=True)

    def password(self) -> str:
        """Return the embedded Postgres' password: made at the first start, and kept in a file of this user alone.

        Raises:
            DemoRefused: The file cannot be read or written.
        """
        try:
            if self.pass_file.exists():
                self.pass_file.chmod(_OWNER_ONLY)
                kept = self.pass_file.read_text().strip().rpartition(":")[2]
                if _PASSWORD.fullmatch(kept):
                    return kept
            password = token_urlsafe(_PASSWORD_BYTES)
            _write_private(self.pass_file, f"127.0.0.1:*:*:{USER}:{password}\n".encode())
        except OSError as problem:
            raise DemoRefused(
                f"the state folder cannot be used: {problem}", "Name another one with --state-dir."
            ) from None
        return password

    def announce(self, running: dict[str, Any]) -> None:
        """Write down where everything is, with passwords, for other commands run beside the demo."""
        _write_private(self.path / RUNNING, orjson.dumps(running))

    def release(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            (self.path / RUNNING).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as file:
        file.write(content)
    unfinished.replace(path)
