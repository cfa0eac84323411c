"""Validation of a version that a model server has loaded, before callers may call it."""

from pathlib import Path
from typing import Protocol


class Validation(Protocol):
    """Asks a loaded version at one model server."""

    async def check(self, model_name: str, version: str, folder: Path) -> int:
        """Ask it the cases that lie in the folder of its artifact, and return how many; without cases 0.

        Raises:
            NotValidated: An answer differs, or the cases cannot be read; the message names the case.
            BackendUnavailable, DeadlineExceeded: The server does not answer.
            RegistryUnavailable: Postgres does not answer in time.
        """
