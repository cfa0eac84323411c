"""``LastLoaded`` in a file beside the stage: a line of JSON with its digest."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event, get_ident
from typing import Final

import orjson
import structlog

from understudy.adapters.artifacts.artifact_tree import sync_folder
from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.ports.loading.last_loaded import LoadedModel

_log = structlog.get_logger(__name__)

WORK_SECONDS: Final = 10.0
MAX_BYTES: Final = 4_194_304
_OWNER_ALONE: Final = 0o600
_HEX_DIGITS: Final = 64


class LastLoadedFile:
    """The file at ``path``, which is its owner's alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = ""
        """The last thing that was said of a file that cannot be written."""

    async def keep(self, models: Collection[LoadedModel]) -> bool:
        """Write beside the path, then rename."""
        try:
            await in_bounded_thread(
                partial(self._write, orjson.dumps([list(model) for model in sorted(models)])), WORK_SECONDS
            )
        except (OSError, ValueError) as problem:
            if str(problem) != self._told:  # each round tries again
                _log.exception("agent.last_loaded_not_kept", path=str(self._path))
            self._told = str(problem)
            return False
        self._told = ""
        return True

    async def read(self) -> Collection[LoadedModel]:
        """Return what was kept, if all of it is as it was written."""
        try:
            return await in_bounded_thread(self._read, WORK_SECONDS)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError) as problem:
            _log.warning("agent.last_loaded_unreadable", path=str(self._path), problem=str(problem))
            return ()

    def _write(self, content: bytes, given_up: Event) -> None:
        # A thread that was left behind on a disk that hangs has a file of its own, and replaces nothing newer.
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.{get_ident()}.new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ALONE)
            with os.fdopen(file, "wb") as writer:
                writer.write(sha256(content).hexdigest().encode() + content)
                writer.flush()
                os.fsync(writer.fileno())
            go_on_unless(given_up)
            beside.replace(self._path)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(self._path.parent)

    def _read(self, _given_up: Event) -> Sequence[LoadedModel]:
        if self._path.stat().st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        sealed = self._path.read_bytes()
        content = sealed[_HEX_DIGITS:]
        if sha256(content).hexdigest().encode() != sealed[:_HEX_DIGITS]:
            raise ValueError("its digest is not that of its content")
        return [LoadedModel(*model) for model in orjson.loads(content)]
