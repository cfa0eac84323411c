"""The digest of an artifact: of a file its SHA-256, of a folder one over the digests of its files."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

PREFIX: Final = "sha256:"
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
