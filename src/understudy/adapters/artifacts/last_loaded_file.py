"""``LastLoaded`` in a file beside the stage: a line of JSON with its digest."""

import os
from collections.abc import Collection, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Final

import orjson
import structlog

from understudy.adapters.artifacts.artifact_tree import sync_folder
from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
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

    async def keep(self, models: Collection[LoadedModel]) -> None:
        """Write beside the path, then rename."""
        try:
            await in_bounded_thread(
                partial(self._write, orjson.dumps([list(model) for model in sorted(models)])), WORK_SECONDS
            )
        except (OSError, ValueError):
            _log.exception("agent.last_loaded_not_kept", path=str(self._path))

    async def read(self) -> Collection[LoadedModel]:
        """Return what was kept, if all of it is as it was written."""
        try:
            return await in_bounded_thread(self._read, WORK_SECONDS)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, TypeError) as problem:
            _log.warning("agent.last_loaded_unreadable", path=str(self._path), problem=str(problem))
            return ()

    def _write(self, content: bytes, _given_up: Event) -> None:
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ALONE)
        with os.fdopen(file, "wb") as writer:
            writer.write(sha256(content).hexdigest().encode() + content)
            writer.flush()
            os.fsync(writer.fileno())
        beside.replace(self._path)
        sync_folder(self._path.parent)

    def _read(self, _given_up: Event) -> Sequence[LoadedModel]:
        if self._path.stat().st_size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        sealed = self._path.read_bytes()
        content = sealed[_HEX_DIGITS:]
        if sha256(content).hexdigest().encode() != sealed[:_HEX_DIGITS]:
            raise ValueError("its digest is not that of its content")
        return [LoadedModel(*model) for model in orjson.loads(content)]
