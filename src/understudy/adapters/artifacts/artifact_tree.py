"""The files of one artifact as they come in: named safely, counted, hashed, and written below a folder."""

import os
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import IO, Final

from understudy.adapters.artifacts.bounded_thread import go_on_unless
from understudy.core.loading.digest import PREFIX, ListingCheck, folder_digest
from understudy.core.loading.file_names import path_within
from understudy.errors import ArtifactNotTaken, ArtifactUnreachable

BLOCK_BYTES: Final = 1_048_576
SYNC_BYTES: Final = 16 * BLOCK_BYTES
"""After so many bytes they go to the disk: half a gigabyte at once holds up what else the machine does (ADR 184)."""


class ArtifactTree:
    """Takes the files of one artifact.

    Args:
        uri: The artifact's address, for messages.
        folder: Where files are written; it is there and empty. ``None``: they are hashed alone.
        given_up: Set once the result is wanted no more.
        most_bytes: Of all files together.
        most_files: Files and folders, or entries of an archive.
    """

    def __init__(self, uri: str, folder: Path | None, given_up: Event, *, most_bytes: int, most_files: int) -> None:
        self.given_up = given_up
        self._uri = uri
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._bytes = 0
        self._entries = 0
        self._digests: dict[str, str] = {}
        self._folders: set[str] = set()
        self._listing = ListingCheck()
        """Of the file that came last."""

    def expect_files(self, files: int) -> None:
        """Refuse an artifact of so many files and folders; before they come, where its store says how many."""
        if files > self._most_files:
            raise ArtifactUnreachable(f"{self._uri} has more than {self._most_files:,} files")

    def expect_bytes(self, size: int) -> None:
        """Refuse an artifact of so many bytes; before they come, where its store says how many."""
        if size > self._most_bytes:
            raise ArtifactUnreachable(f"{self._uri} has more than {self._most_bytes:,} bytes")

    def add(self, name: str, blocks: Iterable[bytes]) -> None:
        """Take one file; one that has come before under the same name gives way.

        Raises:
            ArtifactNotTaken: Its name leads out of the folder, or names both a file and a folder.
            ArtifactUnreachable: There are too many files or bytes.
        """
        path = self.path_of(name)
        if not path:
            raise ArtifactNotTaken(f"{self._uri} holds a file without a name")
        self.count_entry(path)
        hashed, self._listing = sha256(), ListingCheck()
        unsynced = 0
        with nullcontext() if self._folder is None else self._opened(self._folder / path) as file:
            for block in blocks:
                go_on_unless(self.given_up)
                self.count_bytes(len(block))
                hashed.update(block)
                self._listing.update(block)
                if file is not None:
                    file.write(block)
                    unsynced += len(block)
                if file is not None and unsynced >= SYNC_BYTES:
                    sync_file(file)
                    unsynced = 0
            if file is not None:
                sync_file(file)
        self._digests[path] = hashed.hexdigest()

    def path_of(self, name: str) -> str:
        """Return the path of a file or folder within the artifact; empty for the artifact's own folder.

        Raises:
            ArtifactNotTaken: It leads out of it.
        """
        try:
            return path_within(name)
        except ValueError as problem:
            raise ArtifactNotTaken(f"{self._uri} holds {name[:200]!r}, which {problem}") from None

    def count_entry(self, path: str) -> None:
        """Count a file or folder, and the folders above it that come for the first time: there may be so many."""
        go_on_unless(self.given_up)  # one may be empty, and have no block to stop at
        self._entries += 1
        folder = path.rpartition("/")[0]
        while folder and folder not in self._folders:
            self._folders.add(folder)
            self._entries += 1
            folder = folder.rpartition("/")[0]
        self.expect_files(self._entries)

    def count_bytes(self, size: int) -> None:
        """Count what came in, of which there may be so much."""
        self._bytes += size
        self.expect_bytes(self._bytes)

    def temporary_file(self) -> IO[bytes]:
        """Open a file without a name on the disk that the files are written to."""
        return tempfile.TemporaryFile(dir=self._folder)

    def digest(self) -> str:
        """Return the digest of a folder with these files; all of them are on the disk then.

        Raises:
            ArtifactUnreachable: There are none.
        """
        if not self._digests:
            raise ArtifactUnreachable(f"{self._uri} holds no file")
        self._sync()
        return folder_digest(self._digests.items())

    def file_digest(self) -> str:
        """Return the digest of the one file that came; it is on the disk then.

        Raises:
            ArtifactNotTaken: It is a list of digests, and a folder with these would have the same one.
        """
        (digest,) = self._digests.values()
        if self._listing.is_listing:
            raise ArtifactNotTaken(f"{self._uri} is a list of digests of files, which is no model")
        self._sync()
        return PREFIX + digest

    def _opened(self, path: Path) -> IO[bytes]:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            return path.open("xb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise ArtifactNotTaken(f"{self._uri} has {path.name!r} as a file and as a folder") from None

    def _sync(self) -> None:
        for folder, _, _ in os.walk(self._folder) if self._folder is not None else ():
            sync_folder(Path(folder))


def sync_file(file: IO[bytes]) -> None:
    """Have what was written to a file on the disk itself."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk itself."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
