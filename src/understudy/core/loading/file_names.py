"""Paths of files within an artifact, as a store, an archive or a manifest names them: none leads out of its folder."""

from typing import Final

MAX_PATH_BYTES: Final = 1_024
MAX_DEPTH: Final = 32
"""Of folders and the file in the last one: the path of the stage is before it, and 4,096 bytes are a system's most."""
MAX_NAME_BYTES: Final = 255


def path_within(name: str) -> str:
    """Return a file's path within its artifact, without ``.`` and doubled slashes; empty for the artifact's folder.

    Raises:
        ValueError: It is absolute, goes up, has control characters, or is too long or too deep; the message says so.
    """
    if name.startswith("/"):
        raise ValueError("is an absolute path")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("goes up to another folder")
    if any(character < " " or character == "\x7f" for character in name):  # a digest's lines end with a line break
        raise ValueError("has a control character")
    if len(parts) > MAX_DEPTH:
        raise ValueError(f"has more than {MAX_DEPTH} folders one in another")
    lengths = [len(part.encode("utf-8", "surrogatepass")) for part in parts]
    if sum(lengths) + len(lengths) > MAX_PATH_BYTES or max(lengths, default=0) > MAX_NAME_BYTES:
        raise ValueError("is too long for a file system")
    return "/".join(parts)
