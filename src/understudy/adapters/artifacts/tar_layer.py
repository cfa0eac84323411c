"""Unpacks a layer into an artifact: folders and plain files with paths within it, in bounded memory, nothing else."""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, cast

from understudy.adapters.artifacts.artifact_tree import BLOCK_BYTES, ArtifactTree, go_on_unless
from understudy.errors import ArtifactNotTaken

MAX_HEADER_BYTES: Final = 256 * 1024
"""Of one entry: the library holds it in memory, however long an archive says that it is."""
_DELETES: Final = ".wh."
"""Prefix of a name by which a layer of an image deletes a file of those below it."""


class _Guarded:
    """A file that is read forward, with a bound on what may be read before the next one is set."""

    def __init__(self, file: IO[bytes], tree: ArtifactTree) -> None:
        self._file = file
        self._tree = tree
        self._left = 0

    def allow(self, size: int) -> None:
        """Permit so many bytes from here on."""
        self._left = size

    def read(self, size: int) -> bytes:
        go_on_unless(self._tree.given_up)
        if size > self._left:
            raise tarfile.ReadError("an entry has a header that is too long")
        self._left -= size
        return self._file.read(size)

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int) -> int:
        """Skip to a position; the library never asks for one that was passed."""
        here = self.tell()
        while here < position:
            block = self.read(min(BLOCK_BYTES, position - here))
            if not block:
                break
            here += len(block)
        return here


def unpack(layer: IO[bytes], tree: ArtifactTree, uri: str, *, is_gzip: bool) -> None:
    """Put the files of a tar into an artifact. What it says of owners, rights and times is not believed.

    Raises:
        ArtifactNotTaken: It is no tar, or has an entry that is neither a folder nor a plain file within the artifact.
        ArtifactUnreachable: There are too many entries or bytes.
    """
    opened = gzip.GzipFile(fileobj=layer, mode="rb") if is_gzip else layer
    guarded = _Guarded(cast("IO[bytes]", opened), tree)
    try:
        guarded.allow(MAX_HEADER_BYTES)
        archive: Any = tarfile.TarFile(fileobj=cast("IO[bytes]", guarded))
        with archive:
            while (entry := archive.next()) is not None:
                _take(entry, guarded, tree, uri)
                archive.members.clear()  # the library keeps what it has read
                archive.pax_headers.clear()
                guarded.allow(MAX_HEADER_BYTES)
    except RecursionError:
        raise ArtifactNotTaken(f"{uri} has a layer that is no whole tar: its headers are nested") from None
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError, LookupError) as problem:
        raise ArtifactNotTaken(f"{uri} has a layer that is no whole tar: {str(problem)[:200]}") from None


def _take(entry: tarfile.TarInfo, guarded: _Guarded, tree: ArtifactTree, uri: str) -> None:
    path = tree.path_of(entry.name)
    if entry.isdir():
        tree.count_entry()
        return
    is_plain = entry.isreg() and not entry.issparse() and entry.size >= 0
    if not is_plain or path.rpartition("/")[2].startswith(_DELETES):
        raise ArtifactNotTaken(f"{uri} holds {entry.name[:200]!r}, which is neither a folder nor a plain file")
    tree.expect(1, entry.size)
    guarded.allow(entry.size + MAX_HEADER_BYTES)
    tree.add(path, _blocks(entry.size, guarded))


def _blocks(size: int, guarded: _Guarded) -> Iterator[bytes]:
    left = size
    while left:
        block = guarded.read(min(BLOCK_BYTES, left))
        if not block:
            raise tarfile.ReadError("unexpected end of data")
        left -= len(block)
        yield block
