"""Callers' keys, as a process that is shown a credential looks them up."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # numpy, which a look-up does not need
    from understudy.core.routing.policy import ApiKey


class KeyLookup(Protocol):
    """Where keys are looked up. Raises ``RegistryUnavailable`` when Postgres does not answer in time."""

    async def find(self, key_id: str) -> "ApiKey | None":
        """Return a key that is not revoked; ``None`` where there is none."""

    async def find_all(self, key_ids: Collection[str]) -> "Mapping[str, ApiKey]":
        """Return those of several keys that are there and not revoked, by their ids, in one question."""
