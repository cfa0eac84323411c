"""The in-memory twin of ``ports.ServerControl``: a model server whose models are files that can be read."""

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from understudy.errors import LoadRefused, ServerNotManageable


class MemoryServerControl:
    """A :class:`understudy.ports.loading.server_control.ServerControl` in this process."""

    def __init__(self) -> None:
        self.available = True
        """Whether the control answers."""
        self.is_off = False
        """Whether it answers, and lets nothing be loaded or dropped."""
        self.refuses: set[str] = set()
        """Names of models that the server cannot load."""
        self.ends_at: set[str] = set()
        """Names of models whose load ends the server, which is away for ``restart_seconds`` then."""
        self.restart_seconds = 2.0
        self.ends = 0
        """How often that was so."""
        self.asked = 0
        """How often it was asked to load or drop a model."""
        self.goes_on: asyncio.Event | None = None
        """What each load waits for, while the server answers no other question."""
        self._is_busy = False
        self.frameworks: dict[str, str] = {}
        """What was said of each model that was loaded."""
        self._loaded: set[str] = set()

    def restart(self) -> None:
        """Lose every model, as a server does that is started again."""
        self._loaded.clear()

    def end(self) -> None:
        """End while a model is loaded, and come back without any.

        Raises:
            ServerNotManageable: As the call under way gets no answer.
        """
        self.ends += 1
        self.restart()
        self.available = False
        asyncio.get_running_loop().call_later(self.restart_seconds, setattr, self, "available", True)
        raise ServerNotManageable("the connection was closed")

    async def describe(self) -> str:
        self._answer_or_fail()
        return "memory 1"

    async def loaded(self) -> Collection[str]:
        self._answer_or_fail()
        return frozenset(self._loaded)

    async def load(self, name: str, folder: Path, framework: str) -> None:
        self._answer_or_fail()
        self._change_or_fail()
        if self.goes_on is not None:
            self._is_busy = True
            try:
                await self.goes_on.wait()
            finally:
                self._is_busy = False
        self.frameworks[name] = framework
        if name in self.ends_at:
            self.end()
        if name in self.refuses or not os.access(folder, os.R_OK):
            raise LoadRefused(f"the model server says: {name} cannot be loaded")
        self._loaded.add(name)

    async def unload(self, name: str) -> None:
        self._answer_or_fail()
        self._change_or_fail()
        self._loaded.discard(name)

    async def close(self) -> None:
        """Nothing is open."""

    def _answer_or_fail(self) -> None:
        if not self.available or self._is_busy:
            raise ServerNotManageable("the model server's control is switched off")

    def _change_or_fail(self) -> None:
        self.asked += 1
        if self.is_off:
            raise ServerNotManageable("the model server lets nothing be loaded or dropped")
