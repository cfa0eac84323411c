"""The last good policy document on local disk, for a start without Postgres."""

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import structlog

from understudy.adapters.disk.files import DiskFiles
from understudy.core.routing.policy_document import PolicyDocument

_log = structlog.get_logger(__name__)

_WORK_TOGETHER = 250
"""Models whose piece is kept that are written between two pauses; about half a millisecond's work."""
_ENCODING_WORK = 10
"""How many such models one counts for that has to be encoded."""
_BLOCK_BYTES = 65_536
"""Written at once."""
_SEAL = re.compile(rb',"digest":"([0-9a-f]{32})"}\Z')
"""The file's end: the BLAKE2b digest of all bytes before it. A flipped bit in a weight would still be JSON."""
_SEAL_BYTES = 48
_REST_SECONDS = 0.001
"""A pause. A thread that computes without pauses takes the GIL from the event loop again and again: with ten thousand
models the tail latency of callers would grow."""


class JsonSnapshotFile:
    """Implements ``ports.SnapshotFile``; several workers may share the path.

    The file is its owner's alone: it has hashes of keys, and the shared cache's secret.

    Args:
        path: The file.
        on_failure: Counts a document, or one model's part of it, that could not be written.
        files: Changes the disk.
    """

    def __init__(
        self, path: Path, on_failure: Callable[[], None] = lambda: None, files: DiskFiles | None = None
    ) -> None:
        self._path = path
        self._on_failure = on_failure
        self._files = DiskFiles() if files is None else files
        self._kept: dict[str, tuple[Any, bytes]] = {}
        """By model: the rows that were written last, and what they are in the file. Of thousands of models one has
        changed since; to decode and encode the others again would cost a tenth of a second at each change."""

    def read(self) -> PolicyDocument | None:
        """Return the document; a file that is missing, damaged or of another format gives ``None``."""
        try:
            return self.load()
        except (OSError, ValueError) as problem:
            _log.warning("policy_snapshot.unreadable", path=str(self._path), problem=str(problem))
            return None

    def load(self) -> PolicyDocument | None:
        """Return the document, or ``None`` where there is no file.

        Raises:
            OSError: This process may not read the file, or the disk fails.
            ValueError: It is damaged, or of another format.
        """
        try:
            document = orjson.loads(_unsealed(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        if not isinstance(document, dict) or not isinstance(document.get("models"), dict):
            raise ValueError("not a policy document")  # noqa: TRY004 - the file is wrong, and no caller's type
        return document

    def write(self, document: PolicyDocument) -> None:
        """Write beside the path, then rename: a reader sees the old document or the new one.

        The new one survives a power cut when this returns. It blocks: call it in a thread. A model whose rows cannot be
        encoded is left out and counted.
        """
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._write_beside(beside, document)
            self._files.replace(beside, self._path)
            self._files.sync_folder(self._path.parent)
        except Exception:  # noqa: BLE001 - the port never raises: the proxy goes on without the file
            _log.exception("policy_snapshot.not_written", path=str(self._path))
            self._on_failure()
            with suppress(OSError):  # on a full disk its room is wanted
                self._files.delete(beside)

    def _write_beside(self, beside: Path, document: PolicyDocument) -> None:
        with suppress(FileNotFoundError):  # a process of the same id was killed
            self._files.delete(beside)
        file = self._files.create(beside)
        try:
            digest, block = blake2b(digest_size=16), b""
            for piece in self._encoded(document):
                digest.update(piece)
                block += piece
                if len(block) >= _BLOCK_BYTES:
                    self._write_all(file, block)
                    block = b""
            self._write_all(file, block + b',"digest":"%b"}' % digest.hexdigest().encode())
            self._files.sync(file)
        finally:
            os.close(file)

    def _write_all(self, file: int, block: bytes) -> None:
        while block:
            landed = self._files.write(file, block)
            if not landed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            block = block[landed:]

    def _encoded(self, document: PolicyDocument) -> Iterator[bytes]:
        """Yield the document without its last brace in pieces: all at once would hold the GIL for tens of ms."""
        before, self._kept = self._kept, {}
        separator, work = b'{"models":{', 0
        for name, rows in document["models"].items():
            if work >= _WORK_TOGETHER:
                time.sleep(_REST_SECONDS)
                work = 0
            known, piece = before.get(name, (None, b""))
            if known is rows and piece:
                work += 1
            else:
                work += _ENCODING_WORK
                piece = self._piece_of(name, rows)
            if piece:
                self._kept[name] = (rows, piece)
                yield separator + piece
                separator = b","
        yield b"}" if separator == b"," else separator + b"}"
        for name, value in document.items():
            if name != "models":
                yield b"," + orjson.dumps(name) + b":" + orjson.dumps(value)

    def _piece_of(self, name: str, rows: Any) -> bytes:
        """Return a model's name and rows as they stand in the file; nothing where they cannot be encoded."""
        try:
            return orjson.dumps(name) + b":" + orjson.dumps(dict(rows) if isinstance(rows, Mapping) else rows)
        except orjson.JSONEncodeError as problem:  # over 254 levels, which orjson reads and does not write
            _log.warning("policy_snapshot.model_left_out", model=name, problem=str(problem))
            self._on_failure()
            return b""


def _unsealed(content: bytes) -> bytes:
    """Return the document as JSON. A file of an earlier release has no seal.

    Raises:
        orjson.JSONDecodeError: The bytes are not those that were written.
    """
    seal = _SEAL.search(content, max(0, len(content) - _SEAL_BYTES))
    if seal is None:
        return content
    document = content[: seal.start()]
    if blake2b(document, digest_size=16).hexdigest().encode() != seal[1]:
        raise orjson.JSONDecodeError("the digest is another file's", "", 0)
    return document + b"}"
