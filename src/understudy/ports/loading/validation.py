"""Validation of a version that a model server has loaded, before callers may call it."""

from pathlib import Path
from typing import Protocol


class Validation(Protocol):
    """Asks a loaded version at one model server."""

    async def check(
        self, model_name: str, version: str, folder: Path, *, has_callers: bool, is_required: bool = False
    ) -> str:
        """Ask it the cases that lie in the folder of its artifact, and return in words what it passed; empty: nothing.

        Further steps (hard calls, load) may follow, but not where proxies call the version meanwhile (``has_callers``).
        Hard calls do where a validation is required (``is_required``).

        Raises:
            NotValidated: An answer differs, the cases cannot be read, or a further step failed; the message names it.
            BackendUnavailable, DeadlineExceeded: The server does not answer.
            RegistryUnavailable: Postgres does not answer in time.
        """
