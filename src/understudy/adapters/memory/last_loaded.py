"""The in-memory twin of ``ports.LastLoaded``."""

import asyncio
from collections.abc import Collection

from understudy.ports.loading.last_loaded import LoadedModel


class MemoryLastLoaded:
    """A :class:`understudy.ports.loading.last_loaded.LastLoaded` in this process; ``kept`` survives an agent."""

    def __init__(self) -> None:
        self.kept: frozenset[LoadedModel] = frozenset()
        self.is_writable = True
        """Whether anything can be kept."""
        self.goes_on: asyncio.Event | None = None
        """What keeping waits for, as for a disk that hangs."""

    async def keep(self, models: Collection[LoadedModel]) -> bool:
        if self.goes_on is not None:
            await self.goes_on.wait()
        if self.is_writable:
            self.kept = frozenset(models)
        return self.is_writable

    async def read(self) -> Collection[LoadedModel]:
        return self.kept
