"""The in-memory twin of ``ports.LastLoaded``."""

from collections.abc import Collection

from understudy.ports.loading.last_loaded import LoadedModel


class MemoryLastLoaded:
    """A :class:`understudy.ports.loading.last_loaded.LastLoaded` in this process; ``kept`` survives an agent."""

    def __init__(self) -> None:
        self.kept: frozenset[LoadedModel] = frozenset()

    async def keep(self, models: Collection[LoadedModel]) -> None:
        self.kept = frozenset(models)

    async def read(self) -> Collection[LoadedModel]:
        return self.kept
