"""``ArtifactStage`` on local disk: artifacts are copied, verified and kept under their digest."""

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from threading import Event, Lock
from typing import Final
from uuid import uuid4

from understudy.adapters.artifacts.artifact_tree import BLOCK_BYTES, ArtifactTree, sync_folder
from understudy.adapters.artifacts.bounded_thread import go_on_unless, in_bounded_thread
from understudy.adapters.artifacts.folder_origin import files_of, said
from understudy.adapters.artifacts.origin import Limits, Origin
from understudy.core.loading.artifact_address import holds_login, scheme_of
from understudy.core.loading.digest import PREFIX, folder_digest, is_digest
from understudy.core.loading.memory import StagedFile
from understudy.core.loading.onnx_trees import tree_bytes
from understudy.errors import ArtifactDiffers, ArtifactUnreachable
from understudy.ports.loading.artifact_stage import Staged

_PART: Final = ".part-"
"""Prefix of what is not complete."""
ONNX: Final = ".onnx"


class FolderStage:
    """Keeps each artifact as the folder ``<stage>/<64 hex digits>``; it appears there whole, or not at all.

    Args:
        stage: A folder on local disk, which is made when the first artifact is fetched.
        origins: What reads artifacts, by the scheme of their address; that of a path is empty.
        limits: Bounds of one artifact.
    """

    def __init__(self, stage: Path, origins: Mapping[str, Origin], limits: Limits | None = None) -> None:
        self._stage = stage
        self._origins = origins
        self._limits = limits or Limits()
        self._putting = Lock()
        """Two versions may have the same artifact, and be fetched at once."""

    async def fetch(self, uri: str, expected: str | None) -> Staged:
        if holds_login(uri):
            raise ArtifactUnreachable("the artifact's address has a login in it, which is not used")
        if expected is not None:
            if not is_digest(expected):
                raise ArtifactDiffers(
                    f"{uri} is registered with the digest {expected[:100]!r}, not sha256: and 64 hex digits"
                )
            folder = await self.verified(expected)
            if folder is not None:
                return Staged(folder, expected)
        try:
            return await in_bounded_thread(partial(self._fetch, uri, expected), self._limits.seconds)
        except (OSError, ValueError) as problem:
            raise ArtifactUnreachable(f"{uri} cannot be copied: {said(problem)}") from None

    async def verified(self, digest: str) -> Path | None:
        folder = self.folder_of(digest)
        try:
            is_sound = await in_bounded_thread(partial(_has_digest, folder, digest), self._limits.seconds)
        except OSError as problem:
            raise ArtifactUnreachable(f"{folder} cannot be verified: {said(problem)}") from None
        return folder if is_sound else None

    def folder_of(self, digest: str) -> Path:
        return self._stage / digest.removeprefix(PREFIX)

    async def files_of(self, digest: str) -> Sequence[StagedFile]:
        folder = self.folder_of(digest)

        def sizes(_: Event) -> list[StagedFile]:
            if not folder.is_dir():
                return []
            return [
                StagedFile(path.relative_to(folder).as_posix(), path.stat().st_size, _tree_bytes_of(path))
                for path in files_of(folder, folder.name)
            ]

        try:
            return await in_bounded_thread(sizes, self._limits.seconds)
        except OSError as problem:
            raise ArtifactUnreachable(f"{folder} cannot be read: {said(problem)}") from None

    async def keep_only(self, digests: frozenset[str]) -> None:
        kept = {self.folder_of(digest).name for digest in digests}

        def delete(given_up: Event) -> None:
            for folder in self._stage.iterdir() if self._stage.is_dir() else ():
                if folder.name not in kept and not given_up.is_set():
                    shutil.rmtree(folder, ignore_errors=True)

        await in_bounded_thread(delete, self._limits.seconds)

    def _fetch(self, uri: str, expected: str | None, given_up: Event) -> Staged:
        origin = self._origins.get(scheme_of(uri))
        if origin is None:
            known = ", ".join(f"{scheme}:" if scheme else "paths" for scheme in self._origins)
            raise ArtifactUnreachable(f"{uri} is none of the addresses that this agent reads: {known}")
        part = self._stage / f"{_PART}{uuid4().hex}"
        part.mkdir(parents=True)
        most_bytes, most_files, _ = self._limits
        try:
            digest = origin.copy(uri, ArtifactTree(uri, part, given_up, most_bytes=most_bytes, most_files=most_files))
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
                sync_folder(self._stage)
        return place


def _tree_bytes_of(path: Path) -> int:
    """Return how much of a file is trees, if it is one of ONNX; few of its pages are read."""
    if path.suffix.lower() != ONNX:
        return 0
    with path.open("rb") as reader:
        try:
            content = mmap(reader.fileno(), 0, access=ACCESS_READ)
        except ValueError:  # it is empty
            return 0
        with content, memoryview(content) as seen:
            return tree_bytes(seen)


def _has_digest(folder: Path, digest: str, given_up: Event) -> bool:
    """Whether a staged folder is there and, read from end to end, has the digest: of its one file, or of all of it."""
    try:
        files = list(files_of(folder, folder.name))
        found = [(path.relative_to(folder).as_posix(), _digest_of(path, given_up)) for path in files]
    except (OSError, ArtifactUnreachable):
        return False
    return [PREFIX + hexed for _, hexed in found] == [digest] or (bool(found) and folder_digest(found) == digest)


def _digest_of(path: Path, given_up: Event) -> str:
    hashed = sha256()
    with path.open("rb") as reader:
        while block := reader.read(BLOCK_BYTES):
            go_on_unless(given_up)
            hashed.update(block)
    return hashed.hexdigest()
