"""Unpacks a layer into an artifact: folders and plain files with paths within it, in bounded memory, nothing else."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from threading import Event
from typing import IO, Any, Final, cast

from understudy.adapters.artifacts.artifact_tree import BLOCK_BYTES, ArtifactTree
from understudy.adapters.artifacts.bounded_thread import go_on_unless
from understudy.errors import ArtifactNotTaken

MAX_HEADER_BYTES: Final = 8 * 1024
"""Of one entry: the library holds it in memory, and its time for one grows with the square of what it has of digits."""
_DELETES: Final = ".wh."
"""Prefix of a name by which a layer of an image deletes a file of those below it."""


class _Wanted:
    """A file that is read as long as the result is wanted: below gzip, which may read for long and give nothing."""

    def __init__(self, file: IO[bytes], given_up: Event) -> None:
        self._file = file
        self._given_up = given_up

    def read(self, size: int) -> bytes:
        go_on_unless(self._given_up)
        return self._file.read(size)

    def tell(self) -> int:
        return self._file.tell()


class _Guarded:
    """A file that is read forward: by the library its headers, with a bound, and the content of entries past it."""

    def __init__(self, file: IO[bytes], tree: ArtifactTree) -> None:
        self._file = file
        self._tree = tree
        self._left = MAX_HEADER_BYTES

    def begin_header(self) -> None:
        """Permit the header of one more entry."""
        self._left = MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Read of a header; it counts as content does, since it was inflated too."""
        if size > self._left:
            raise tarfile.ReadError("an entry has a header that is too long")
        self._left -= size
        block = self._file.read(size)
        self._tree.count_bytes(len(block))
        return block

    def content(self, size: int) -> bytes:
        """Read of an entry's content."""
        return self._file.read(size)

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Skip to a position; the library never asks for one that was passed."""
        here = self.tell()
        if position > here:
            here += len(self.read(position - here))
        return here


def unpack(layer: IO[bytes], tree: ArtifactTree, uri: str, *, is_gzip: bool) -> None:
    """Put the files of a tar into an artifact. What it says of owners, rights and times is not believed.

    Raises:
        ArtifactNotTaken: It is no tar, or has an entry that is neither a folder nor a plain file within the artifact.
        ArtifactUnreachable: There are too many entries or bytes.
    """
    wanted = cast("IO[bytes]", _Wanted(layer, tree.given_up))
    guarded = _Guarded(cast("IO[bytes]", gzip.GzipFile(fileobj=wanted, mode="rb")) if is_gzip else wanted, tree)
    try:
        archive: Any = tarfile.TarFile(fileobj=cast("IO[bytes]", guarded))
        with archive:
            while (entry := archive.next()) is not None:
                _take(entry, guarded, tree, uri)
                archive.members.clear()  # the library keeps what it has read
                archive.pax_headers.clear()
                guarded.begin_header()
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, LookupError) as problem:
        raise ArtifactNotTaken(f"{uri} has a layer that is no whole tar: {str(problem)[:200]}") from None


def _take(entry: tarfile.TarInfo, guarded: _Guarded, tree: ArtifactTree, uri: str) -> None:
    path = tree.path_of(entry.name)
    if entry.isdir():
        tree.count_entry(path)
        return
    is_plain = entry.isreg() and not entry.issparse() and entry.size >= 0
    if not is_plain or path.rpartition("/")[2].startswith(_DELETES):
        raise ArtifactNotTaken(f"{uri} holds {entry.name[:200]!r}, which is neither a folder nor a plain file")
    tree.expect_bytes(entry.size)
    tree.add(path, _blocks(entry.size, guarded))


def _blocks(size: int, guarded: _Guarded) -> Iterator[bytes]:
    left = size
    while left:
        block = guarded.content(min(BLOCK_BYTES, left))
        if not block:
            raise tarfile.ReadError("unexpected end of data")
        left -= len(block)
        yield block
