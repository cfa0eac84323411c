"""What a server had loaded last, kept beside the stage: it says what to load again while Postgres is away."""

from collections.abc import Collection
from typing import NamedTuple, Protocol


class LoadedModel(NamedTuple):
    """A version as a server has it."""

    name: str
    """On the server."""
    digest: str
    """Of its artifact on the stage."""
    framework: str


class LastLoaded(Protocol):
    """Neither call raises: an agent goes on without what it keeps here."""

    async def keep(self, models: Collection[LoadedModel]) -> bool:
        """Keep these in the place of what was kept before, which survives the process; return whether it is kept."""

    async def read(self) -> Collection[LoadedModel]:
        """Return what was kept; nothing, or something damaged, is none."""
