"""Where artifacts are read from: one origin for each kind of address."""

from typing import Final, NamedTuple, Protocol

from understudy.adapters.artifacts.artifact_tree import ArtifactTree

FETCH_SECONDS: Final = 600.0
MAX_FILES: Final = 100_000
MAX_BYTES: Final = 20 * 1024**3


class Limits(NamedTuple):
    """Bounds of one artifact."""

    most_bytes: int = MAX_BYTES
    most_files: int = MAX_FILES
    seconds: float = FETCH_SECONDS
    """Longest time of a fetch, or of reading all of a staged copy."""


class Origin(Protocol):
    """Reads artifacts of one kind of address. Every call blocks, in a thread of its own."""

    def copy(self, uri: str, tree: ArtifactTree) -> str:
        """Put every file of an artifact into ``tree``, and return the artifact's digest.

        Raises:
            ArtifactUnreachable: It cannot be read, or is none that may be.
            ArtifactForbidden: Its store refuses the login.
            ArtifactNotTaken: It holds what no artifact may.
            ArtifactDiffers: It is not what its own address names.
            GivenUp: The result is wanted no more.
            OSError, ValueError: A file cannot be read or written.
        """
