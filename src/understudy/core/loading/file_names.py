"""Paths of files within an artifact, as a store, an archive or a manifest names them: none leads out of its folder."""

from typing import Final

MAX_PATH_BYTES: Final = 4_000
MAX_NAME_BYTES: Final = 255


def path_within(name: str) -> str:
    """Return a file's path within its artifact, without ``.`` and doubled slashes; empty for the artifact's folder.

    Raises:
        ValueError: It is absolute, goes up, has a NUL byte or is longer than a file system takes; the message says so.
    """
    if name.startswith("/"):
        raise ValueError("is an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("goes up to another folder")
    if "\0" in name:
        raise ValueError("has a NUL byte")
    lengths = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    if sum(lengths) + len(lengths) > MAX_PATH_BYTES or max(lengths, default=0) > MAX_NAME_BYTES:
        raise ValueError("is too long for a file system")
    return "/".join(parts)
