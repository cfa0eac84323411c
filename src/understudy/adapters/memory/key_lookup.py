"""The in-memory twin of the table ``ApiKey``, for look-ups."""

from collections.abc import Collection, Iterable, Mapping

from understudy.core.routing.policy import ApiKey
from understudy.errors import RegistryUnavailable


class MemoryKeyLookup:
    """Implements ``ports.KeyLookup``; ``keys`` and ``available`` may be set at any time."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self.keys = {key.id: key for key in keys}
        self.available = True
        self.asked = 0

    async def find(self, key_id: str) -> ApiKey | None:
        return (await self.find_all((key_id,))).get(key_id)

    async def find_all(self, key_ids: Collection[str]) -> Mapping[str, ApiKey]:
        self.asked += 1
        if not self.available:
            raise RegistryUnavailable
        return {name: self.keys[name] for name in key_ids if name in self.keys}
