"""Control of one model server: what it has loaded, and having it load and unload models."""

from collections.abc import Collection
from pathlib import Path
from typing import Protocol


class ServerControl(Protocol):
    """A model server's own management API. Every call has a deadline, and may be repeated.

    Every call raises ``ServerNotManageable`` when the API does not answer, or is off.
    """

    async def describe(self) -> str:
        """Return the server's build: its name and version."""

    async def loaded(self) -> Collection[str]:
        """Return the names of the models that are loaded and ready, as the server itself says."""

    async def load(self, name: str, folder: Path, framework: str) -> None:
        """Have the server load the model in ``folder`` under ``name``; it is ready when this returns.

        ``framework`` is the registered one (``ModelVersion.framework``): some servers need to be told.

        Raises:
            LoadRefused: The server cannot load it, by its own words, or has no use for the files.
        """

    async def unload(self, name: str) -> None:
        """Have the server drop a model; one that it does not have is no error. It is gone when this returns.

        Raises:
            LoadRefused: The server keeps it.
        """

    async def close(self) -> None:
        """Close the connection."""
