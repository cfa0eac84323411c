"""The stage: a folder on local disk where artifacts are copied to, verified, and loaded from."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from understudy.core.loading.memory import StagedFile


class Staged(NamedTuple):
    """An artifact on the stage."""

    folder: Path
    digest: str
    """``sha256:`` and 64 hex digits (``core.loading.digest``)."""


class ArtifactStage(Protocol):
    """Copies artifacts from where they were registered. Every call has a deadline; what is cancelled ends soon."""

    async def fetch(self, uri: str, expected: str | None) -> Staged:
        """Return the artifact, copied and verified; what is on the stage already is verified and copied no more.

        Args:
            uri: ``ModelVersion.artifact_path``.
            expected: The digest that it must have; ``None``: the version has none yet.

        Raises:
            ArtifactDiffers: It has another digest; nothing of it stays on the stage.
            ArtifactUnreachable: It cannot be read, or not in time, or is none that may be.
            ArtifactForbidden: Its store refuses the login, or wants one.
            ArtifactNotTaken: It holds what none may, or is of a kind that is not read.
        """

    async def verified(self, digest: str) -> Path | None:
        """Return the folder of a staged artifact after all of it was read; ``None``: it is not there, or damaged.

        Raises:
            ArtifactUnreachable: It was not read in time.
        """

    def folder_of(self, digest: str) -> Path:
        """Return where an artifact is once it was fetched and verified."""

    async def files_of(self, digest: str) -> Sequence[StagedFile]:
        """Return the files of a staged artifact, by their paths in it; of one that is not there, none.

        Raises:
            ArtifactUnreachable: It was not read in time.
        """

    async def keep_only(self, digests: frozenset[str]) -> None:
        """Delete every other artifact."""
