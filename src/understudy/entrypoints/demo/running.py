"""Where a demo that runs is, as every command asks that has no database named."""

import fcntl
from pathlib import Path
from typing import Any, TextIO

import orjson

LOCK, RUNNING = "demo.lock", "demo.json"
"""Files of a demo's folder."""


def read_running(folder: Path) -> dict[str, Any] | None:
    """Read from a demo's folder where everything of it is; ``None`` when none runs there."""
    try:
        with (folder / LOCK).open() as lock:
            if not _is_held(lock):
                return None
        running: dict[str, Any] = orjson.loads((folder / RUNNING).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return running


def _is_held(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
