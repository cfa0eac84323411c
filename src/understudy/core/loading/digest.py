"""The digest of an artifact: of a file its SHA-256, of a folder one over the digests of its files."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from understudy.core.loading.file_names import MAX_PATH_BYTES

PREFIX: Final = "sha256:"
_LINE: Final = re.compile(rb"[0-9a-f]{64}  [^\n]+")
_MOST_OF_LINE: Final = 64 + 2 + MAX_PATH_BYTES
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether a text can be the digest of an artifact; an engineer may have registered any text."""
    return _DIGEST.fullmatch(text) is not None


def folder_digest(files: Iterable[tuple[str, str]]) -> str:
    r"""Return the digest of a folder from each file's path in it and SHA-256 in hex.

    Within the folder, ``find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- | sha256sum`` prints
    the same figure, where no name has a backslash or a line break, which ``sha256sum`` writes in another way.
    """
    lines = sorted((path.encode("utf-8", "surrogateescape"), digest) for path, digest in files)
    content = b"".join(digest.encode() + b"  " + path + b"\n" for path, digest in lines)
    return PREFIX + sha256(content).hexdigest()


class ListingCheck:
    """Tells whether a file is such a list of a folder's digests: the file would have the digest of that folder."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_possible = True
        self._has_lines = False

    def update(self, block: bytes) -> None:
        """Take what follows in the file."""
        if not self._is_possible:
            return
        *lines, self._rest = (self._rest + block).split(b"\n")
        self._has_lines = self._has_lines or bool(lines)
        if len(self._rest) > _MOST_OF_LINE or not all(_LINE.fullmatch(line) for line in lines):
            self._is_possible = False
            self._rest = b""

    @property
    def is_listing(self) -> bool:
        """Whether all that was taken is one."""
        return self._is_possible and self._has_lines and not self._rest
