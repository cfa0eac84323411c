"""The in-memory twin of ``ports.ArtifactStage``: artifacts by their address, each with the digest of its content."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from understudy.core.loading.digest import PREFIX
from understudy.core.loading.memory import StagedFile
from understudy.errors import ArtifactDiffers, ArtifactUnreachable
from understudy.ports.loading.artifact_stage import Staged


class MemoryArtifactStage:
    """A :class:`understudy.ports.loading.artifact_stage.ArtifactStage` whose folders are all the same one.

    ``artifacts`` has the content behind each address.
    """

    def __init__(self, folder: Path) -> None:
        self.artifacts: dict[str, bytes] = {}
        self.staged: set[str] = set()
        self._folder = folder

    async def fetch(self, uri: str, expected: str | None) -> Staged:
        if expected in self.staged:
            return Staged(self._folder, expected or "")
        if uri not in self.artifacts:
            raise ArtifactUnreachable(f"{uri} cannot be read: No such file or directory")
        digest = PREFIX + sha256(self.artifacts[uri]).hexdigest()
        if expected not in (None, digest):
            raise ArtifactDiffers(f"{uri} is {digest}, not {expected}: not loaded")
        self.staged.add(digest)
        return Staged(self._folder, digest)

    async def verified(self, digest: str) -> Path | None:
        return self._folder if digest in self.staged else None

    def folder_of(self, digest: str) -> Path:  # noqa: ARG002 - they are all the same one
        return self._folder

    async def files_of(self, digest: str) -> Sequence[StagedFile]:
        sizes = {PREFIX + sha256(content).hexdigest(): len(content) for content in self.artifacts.values()}
        return [StagedFile("model.onnx", sizes[digest])] if digest in self.staged else []

    async def keep_only(self, digests: frozenset[str]) -> None:
        self.staged &= digests
