"""One caller's key, as a process that is shown a credential looks it up."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # numpy, which a look-up does not need
    from understudy.core.routing.policy import ApiKey


class KeyLookup(Protocol):
    """Where keys are looked up one by one. Raises ``RegistryUnavailable`` when Postgres does not answer in time."""

    async def find(self, key_id: str) -> "ApiKey | None":
        """Return a key that is not revoked; ``None`` where there is none."""
