"""Which start of TensorFlow Serving this is: it tells neither when it was started nor of which build it is.

The name of its kept model is another one for each start, so a server that says nothing of that was started anew.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

from understudy.adapters.model_servers.control.kept_model import KeptModel, kept_name
from understudy.adapters.model_servers.control.model_service import ModelService
from understudy.errors import ServerNotManageable


class PresentStart(NamedTuple):
    """The start that a server has had last."""

    name: str
    has_kept_model: bool
    """Whether the server has been given the kept model since; of one that has not, nothing is loaded."""


class ServerStart:
    """The present start of the server that is asked by ``service``, whose models are in ``folder``."""

    def __init__(self, service: ModelService, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self._kept = KeptModel(folder)
        self._one_look = asyncio.Lock()
        self._name: str | None = None
        self._was_seen = True
        """Whether the server is taken to have the kept model: one that does not was started anew then."""

    async def present(self) -> PresentStart:
        """Ask the server, and return its present start.

        Raises:
            ServerNotManageable: The server does not answer, or the folder cannot be used.
        """
        async with self._one_look:
            try:
                return await self._look()
            except OSError as problem:
                raise ServerNotManageable(f"{self._folder} cannot be used: {problem.strerror or problem}") from None

    async def drop_others(self) -> None:
        """Delete the kept models of starts before, once the server has that of the present one."""
        if self._name is not None:
            await self._kept.drop_others(self._name)

    async def _look(self) -> PresentStart:
        name = self._name or await self._kept.newest()
        # Asked without one as well: a server is to answer before something is written for it.
        has_it = await self._service.status(kept_name(name or "")) is not None
        if name is None or (self._was_seen and not has_it):
            name, self._was_seen = await self._kept.renew(), False
        self._name = name
        self._was_seen |= has_it
        return PresentStart(name, has_it)
