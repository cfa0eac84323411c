"""What keys were made for: their notes, which tell a reader whom a key's id stands for."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from understudy.errors import RegistryError
from understudy.ports.registry.registry import KeyRecord

KEPT_SECONDS = 30.0
"""How old they may be: a key that was just made has its id alone until then."""
MAX_KEYS = 2_000
"""The newest keys have their notes; what older ones did is shown with their ids alone."""
READ_SECONDS = 4.0
"""Longest time of a reading."""
WAIT_SECONDS = 1.0
"""How long a page waits for one: it is worth showing with ids alone, or with the notes of before."""


class KeyNotes:
    """Reads the notes of keys, revoked ones too: what they did stands in the audit for good.

    A reading is one for all pages, has its own time, and takes none of a page's but :data:`WAIT_SECONDS`.

    Args:
        list_keys: Reads so many of the newest keys.
        monotonic: The clock that notes age by.
    """

    def __init__(
        self,
        list_keys: Callable[[int], Awaitable[Sequence[KeyRecord]]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._list_keys = list_keys
        self._monotonic = monotonic
        self._read_at = float("-inf")
        self._notes: Mapping[str, str] = {}
        self._reading: asyncio.Task[None] | None = None

    async def read(self) -> Mapping[str, str]:
        """Return the notes by their keys' ids; those that are known already while the registry does not give them."""
        if self._reading is None and self._monotonic() - self._read_at >= KEPT_SECONDS:
            self._read_at = self._monotonic()
            self._reading = asyncio.create_task(self._renew())
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=WAIT_SECONDS)
        return self._notes

    async def _renew(self) -> None:
        try:
            with suppress(RegistryError, TimeoutError):
                async with asyncio.timeout(READ_SECONDS):
                    keys = await self._list_keys(MAX_KEYS)
                self._notes = {key.id: key.note for key in keys if key.note}
        finally:
            self._reading = None
