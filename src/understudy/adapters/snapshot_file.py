"""The last good policy document on local disk, for a start without Postgres."""

import os
from pathlib import Path

import orjson
import structlog

from understudy.core.policy import PolicyDocument

_log = structlog.get_logger(__name__)


class JsonSnapshotFile:
    """Implements ``ports.SnapshotFile``; several workers may share the path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> PolicyDocument | None:
        """Return the document; a file that is missing, cut or foreign gives ``None``."""
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
        """Write beside the path, then rename: a reader sees the old document or the new one."""
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(orjson.dumps(document))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as problem:
            _log.warning("policy_snapshot.not_written", path=str(self._path), problem=str(problem))
