"""``ArtifactStage`` of files and folders of this machine: copied, verified and kept under their digest."""

import os
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from understudy.adapters.artifacts.bounded_thread import in_bounded_thread
from understudy.core.loading.digest import PREFIX, folder_digest, is_digest
from understudy.errors import ArtifactDiffers, ArtifactUnreachable
from understudy.ports.loading.artifact_stage import Staged

FETCH_SECONDS: Final = 600.0
MAX_FILES: Final = 100_000
MAX_BYTES: Final = 20 * 1024**3
_BLOCK_BYTES: Final = 1_048_576
_PART: Final = ".part-"
"""Prefix of what is not complete."""


class _GivenUp(Exception):
    """The result is wanted no more."""


class FolderStage:
    """Keeps each artifact as the folder ``<stage>/<64 hex digits>``; it appears there whole, or not at all.

    Args:
        stage: A folder on local disk, which is made when the first artifact is fetched.
        root: What artifacts must lie below.
    """

    def __init__(self, stage: Path, root: Path) -> None:
        self._stage = stage
        self._root = root
        self._putting = Lock()
        """Two versions may have the same artifact, and be fetched at once."""

    async def fetch(self, uri: str, expected: str | None) -> Staged:
        if expected is not None:
            if not is_digest(expected):
                raise ArtifactDiffers(
                    f"{uri} is registered with the digest {expected[:100]!r}, not sha256: and 64 hex digits"
                )
            folder = await self.verified(expected)
            if folder is not None:
                return Staged(folder, expected)
        try:
            return await in_bounded_thread(partial(self._fetch, uri, expected), FETCH_SECONDS)
        except (OSError, ValueError) as problem:
            raise ArtifactUnreachable(f"{uri} cannot be copied: {_said(problem)}") from None

    async def verified(self, digest: str) -> Path | None:
        folder = self.folder_of(digest)
        try:
            is_sound = await in_bounded_thread(partial(_has_digest, folder, digest), FETCH_SECONDS)
        except OSError as problem:
            raise ArtifactUnreachable(f"{folder} cannot be verified: {_said(problem)}") from None
        return folder if is_sound else None

    def folder_of(self, digest: str) -> Path:
        return self._stage / digest.removeprefix(PREFIX)

    async def keep_only(self, digests: frozenset[str]) -> None:
        kept = {self.folder_of(digest).name for digest in digests}

        def delete(given_up: Event) -> None:
            for folder in self._stage.iterdir() if self._stage.is_dir() else ():
                if folder.name not in kept and not given_up.is_set():
                    shutil.rmtree(folder, ignore_errors=True)

        await in_bounded_thread(delete, FETCH_SECONDS)

    def _fetch(self, uri: str, expected: str | None, given_up: Event) -> Staged:
        source = self._source_of(uri)
        part = self._stage / f"{_PART}{uuid4().hex}"
        part.mkdir(parents=True)
        try:
            digest = _copy(source, part, uri, given_up)
            if expected is not None and digest != expected:
                raise ArtifactDiffers(f"{uri} is {digest}, not {expected}: not loaded")
            return Staged(self._put(part, digest, given_up), digest)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _put(self, part: Path, digest: str, given_up: Event) -> Path:
        """Give a whole copy its place, unless a sound one of another version is there: a server may be loading it."""
        place = self.folder_of(digest)
        with self._putting:
            if not _has_digest(place, digest, given_up):
                shutil.rmtree(place, ignore_errors=True)
                part.rename(place)
                _sync(self._stage)
        return place

    def _source_of(self, uri: str) -> Path:
        """Return the file or folder that a URI or path names, with every link on the way resolved.

        Raises:
            ArtifactUnreachable: There is none, or it lies outside the root.
        """
        try:
            parts = urlsplit(uri)
            if parts.scheme not in ("", "file") or parts.netloc:
                raise ArtifactUnreachable(
                    f"{uri} is neither a path nor file:///…, and this agent reads no other artifacts"
                )
            root = self._root.resolve(strict=True)
            source = (root / (unquote(parts.path) if parts.scheme else uri)).resolve(strict=True)
        except (OSError, ValueError) as problem:
            raise ArtifactUnreachable(f"{uri} cannot be read: {_said(problem)}") from None
        if not source.is_relative_to(root):
            raise ArtifactUnreachable(f"{uri} lies outside {root}")
        return source


def _copy(source: Path, part: Path, uri: str, given_up: Event) -> str:
    """Copy a file, or all files of a folder, and return the artifact's digest; all of it is on the disk then."""
    if source.is_file():
        digest = PREFIX + _copy_file(source, part / source.name, uri, given_up, MAX_BYTES)[0]
        _sync(part)
        return digest
    left = MAX_BYTES
    digests: list[tuple[str, str]] = []
    for number, path in enumerate(_files_of(source, uri)):
        if number == MAX_FILES:
            raise ArtifactUnreachable(f"{uri} has more than {MAX_FILES:,} files")
        name = path.relative_to(source)
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        hexed, size = _copy_file(path, part / name, uri, given_up, left)
        digests.append((name.as_posix(), hexed))
        left -= size
    if not digests:
        raise ArtifactUnreachable(f"{uri} holds no file")
    for folder, _, _ in os.walk(part):
        _sync(Path(folder))
    return folder_digest(digests)


def _said(problem: OSError | ValueError) -> str:
    """Return the system's words and, where it names one, the file that they are about."""
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    return problem.strerror if problem.filename is None else f"{problem.strerror}: {problem.filename}"


def _files_of(folder: Path, uri: str) -> Iterator[Path]:
    for place, folders, names in os.walk(folder, onerror=_refuse):
        for name in (*folders, *names):
            mode = (Path(place) / name).lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise ArtifactUnreachable(f"{uri} holds {name}, which is neither a file nor a folder")
        yield from (Path(place) / name for name in names)


def _refuse(problem: OSError) -> None:
    """End a walk at a folder that cannot be listed: what is left out silently would be pinned as the whole."""
    raise problem


def _copy_file(source: Path, target: Path, uri: str, given_up: Event, most_bytes: int) -> tuple[str, int]:
    """Copy a file to the disk itself; return its SHA-256 in hex, and its size."""
    hashed, size = sha256(), 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while block := reader.read(_BLOCK_BYTES):
            _go_on_unless(given_up)
            size += len(block)
            if size > most_bytes:
                raise ArtifactUnreachable(f"{uri} has more than {MAX_BYTES:,} bytes")
            hashed.update(block)
            writer.write(block)
        writer.flush()
        os.fsync(writer.fileno())
    return hashed.hexdigest(), size


def _go_on_unless(given_up: Event) -> None:
    """End a thread's work at its next block once its result is wanted no more."""
    if given_up.is_set():
        raise _GivenUp


def _has_digest(folder: Path, digest: str, given_up: Event) -> bool:
    """Whether a staged folder is there and, read from end to end, has the digest: of its one file, or of all of it."""
    try:
        files = list(_files_of(folder, folder.name))
        found = [(path.relative_to(folder).as_posix(), _digest_of(path, given_up)) for path in files]
    except (OSError, ArtifactUnreachable):
        return False
    return [PREFIX + hexed for _, hexed in found] == [digest] or (bool(found) and folder_digest(found) == digest)


def _digest_of(path: Path, given_up: Event) -> str:
    hashed = sha256()
    with path.open("rb") as reader:
        while block := reader.read(_BLOCK_BYTES):
            _go_on_unless(given_up)
            hashed.update(block)
    return hashed.hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
