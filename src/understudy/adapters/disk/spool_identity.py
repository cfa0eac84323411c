"""The id of a spool: its folder's name, or a file in the folder once its offset in the database became useless."""

import os
import re
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles, create_beginning_with

IDENTITY = "identity"
SPOOL_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HALF = "identity.new"
_ID_CHARACTERS = 36


def read_identity(folder: Path) -> str:
    """Return the id under which rows of a folder are shipped.

    Raises:
        OSError: The folder has a file with its id, which cannot be read.
    """
    try:
        with (folder / IDENTITY).open("rb") as file:
            kept = file.read(_ID_CHARACTERS).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return folder.name
    return kept if SPOOL_ID.fullmatch(kept) else folder.name


def keep_identity(folder: Path, spool_id: str, files: DiskFiles) -> None:
    """Give a folder another id, which survives a power cut when this returns.

    Raises:
        OSError: The disk refuses; the folder has the id that it had.
    """
    half = folder / _HALF
    half.unlink(missing_ok=True)
    file = create_beginning_with(spool_id.encode(), half, files)
    try:
        files.sync(file)
    finally:
        os.close(file)
    files.replace(half, folder / IDENTITY)
    files.sync_folder(folder)
