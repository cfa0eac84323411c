"""``Origin`` of files and folders of this machine that lie below one folder."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from understudy.adapters.artifacts.artifact_tree import BLOCK_BYTES, ArtifactTree
from understudy.errors import ArtifactUnreachable


class FolderOrigin:
    """An :class:`understudy.adapters.artifacts.origin.Origin` of paths, and of ``file:///…``.

    Args:
        root: What artifacts must lie below.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def copy(self, uri: str, tree: ArtifactTree) -> str:
        source = self._source_of(uri)
        if source.is_file():
            tree.add(source.name, _blocks_of(source))
            return tree.file_digest()
        for path in files_of(source, uri):
            tree.add(path.relative_to(source).as_posix(), _blocks_of(path))
        return tree.digest()

    def _source_of(self, uri: str) -> Path:
        """Return the file or folder that a URI or path names, with every link on the way resolved.

        Raises:
            ArtifactUnreachable: There is none, or it lies outside the root.
        """
        try:
            parts = urlsplit(uri)
            if parts.netloc:
                raise ArtifactUnreachable(f"{uri} is neither a path nor file:///…")
            root = self._root.resolve(strict=True)
            source = (root / (unquote(parts.path) if parts.scheme else uri)).resolve(strict=True)
        except (OSError, ValueError) as problem:
            raise ArtifactUnreachable(f"{uri} cannot be read: {said(problem)}") from None
        if not source.is_relative_to(root):
            raise ArtifactUnreachable(f"{uri} lies outside {root}")
        return source


def said(problem: OSError | ValueError) -> str:
    """Return the system's words and, where it names one, the file that they are about."""
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    return problem.strerror if problem.filename is None else f"{problem.strerror}: {problem.filename}"


def files_of(folder: Path, uri: str) -> Iterator[Path]:
    """Return every file below a folder.

    Raises:
        ArtifactUnreachable: It holds a link or a device.
        OSError: A folder cannot be listed: what is left out silently would be pinned as the whole.
    """
    for place, folders, names in os.walk(folder, onerror=_refuse):
        for name in (*folders, *names):
            mode = (Path(place) / name).lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise ArtifactUnreachable(f"{uri} holds {name}, which is neither a file nor a folder")
        yield from (Path(place) / name for name in names)


def _refuse(problem: OSError) -> None:
    raise problem


def _blocks_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as reader:
        while block := reader.read(BLOCK_BYTES):
            yield block
