"""What keys were made for: their notes, which tell a reader whom a key's id stands for."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from understudy.errors import RegistryError
from understudy.ports.registry.registry import KeyRecord

KEPT_SECONDS = 30.0
"""How old they may be: a key that was just made has its id alone until then."""


class KeyNotes:
    """Reads the notes of all keys, revoked ones too: what they did stands in the audit for good.

    Args:
        list_keys: Reads the keys.
        monotonic: The clock that notes age by.
    """

    def __init__(
        self, list_keys: Callable[[], Awaitable[Sequence[KeyRecord]]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._list_keys = list_keys
        self._monotonic = monotonic
        self._read_at = float("-inf")
        self._notes: Mapping[str, str] = {}

    async def read(self) -> Mapping[str, str]:
        """Return the notes by their keys' ids; those that are known already while the registry does not give them."""
        if self._monotonic() - self._read_at >= KEPT_SECONDS:
            self._read_at = self._monotonic()
            with suppress(RegistryError):
                self._notes = {key.id: key.note for key in await self._list_keys() if key.note}
        return self._notes
