"""The last good policy document on local disk, for a start without Postgres."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import orjson
import structlog

from understudy.core.routing.policy_document import PolicyDocument

_log = structlog.get_logger(__name__)

_MODELS_TOGETHER = 25
"""Models encoded between two pauses, about half a millisecond's work."""
_MODE = 0o600
_REST_SECONDS = 0.001
"""A pause. A thread that computes without pauses takes the GIL from the event loop again and again: with ten thousand
models the tail latency of callers would grow."""


def _open_private(path: Path) -> BinaryIO:
    """Open a file that its owner alone may read: it has hashes of keys, and the shared cache's secret."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
    os.fchmod(descriptor, _MODE)  # one that a killed process left would keep its own mode
    return os.fdopen(descriptor, "wb")


class JsonSnapshotFile:
    """Implements ``ports.SnapshotFile``; several workers may share the path.

    ``on_failure`` counts a document, or one model's part of it, that could not be written.
    """

    def __init__(self, path: Path, on_failure: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._on_failure = on_failure

    def read(self) -> PolicyDocument | None:
        """Return the document; a file that is missing, truncated or of another format gives ``None``."""
        try:
            document = orjson.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as problem:
            _log.warning("policy_snapshot.unreadable", path=str(self._path), problem=str(problem))
            return None
        if not isinstance(document, dict) or not isinstance(document.get("models"), dict):
            _log.warning("policy_snapshot.unreadable", path=str(self._path), problem="not a policy document")
            return None
        return document

    def write(self, document: PolicyDocument) -> None:
        """Write beside the path, then rename: a reader sees the old document or the new one.

        It blocks: call it in a thread. A model whose rows cannot be encoded is left out and counted.
        """
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _open_private(beside) as file:
                file.writelines(self._encoded(document))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except Exception:  # noqa: BLE001 - the port never raises: the proxy goes on without the file
            _log.exception("policy_snapshot.not_written", path=str(self._path))
            self._on_failure()

    def _encoded(self, document: PolicyDocument) -> Iterator[bytes]:
        """Yield the document in pieces: all of it at once would hold the GIL for tens of milliseconds."""
        separator = b'{"models":{'
        for number, (name, rows) in enumerate(document["models"].items(), start=1):
            if number % _MODELS_TOGETHER == 0:
                time.sleep(_REST_SECONDS)
            try:
                piece = orjson.dumps(dict(rows) if isinstance(rows, Mapping) else rows)
            except orjson.JSONEncodeError as problem:  # over 254 levels, which orjson reads and does not write
                _log.warning("policy_snapshot.model_left_out", model=name, problem=str(problem))
                self._on_failure()
                continue
            yield separator + orjson.dumps(name) + b":" + piece
            separator = b","
        yield b"}" if separator == b"," else separator + b"}"
        for name, value in document.items():
            if name != "models":
                yield b"," + orjson.dumps(name) + b":" + orjson.dumps(value)
        yield b"}"
