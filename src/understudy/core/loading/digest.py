"""The digest of an artifact: of a file its SHA-256, of a folder one over the digests of its files."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

PREFIX: Final = "sha256:"


def folder_digest(files: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a folder from each file's path in it and SHA-256 in hex.

    The same figure as ``find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum`` within the folder.
    """
    lines = sorted((path.encode("utf-8", "surrogateescape"), digest) for path, digest in files)
    content = b"".join(digest.encode() + b"  " + path + b"\n" for path, digest in lines)
    return PREFIX + sha256(content).hexdigest()
