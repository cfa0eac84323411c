"""Which monitor leads, and its epoch, without which nothing is written."""

from typing import Protocol

Epoch = int
"""Number of a leadership: it grows with each, and no two monitors ever have the same one."""


LEASE_SECONDS = 6.0
"""How long a lease that is not renewed is kept for its holder."""
SILENT_SECONDS = 2 * LEASE_SECONDS
"""A monitor that has been silent for longer leads no more: no rollout is judged."""


class Lease(Protocol):
    """Who may act as the monitor. One clock judges it for all: that of the place where it is kept."""

    async def take_or_renew(self, holder: str) -> Epoch | None:
        """Return the epoch while ``holder`` leads, as it does for ``LEASE_SECONDS`` from now; ``None``: another may.

        A new holder gets a new epoch. One that is late keeps its own if no other held the lease meanwhile.

        Args:
            holder: A name that no other process has, nor had before.

        Raises:
            RegistryUnavailable: Postgres does not answer in time; the lease may have been taken or renewed.
            MigrationNeeded: The table is not there.
        """

    async def release(self, holder: str) -> None:
        """Let the next one in at once; nothing happens when ``holder`` does not lead.

        Raises:
            RegistryUnavailable: As :meth:`take_or_renew`.
            MigrationNeeded: As :meth:`take_or_renew`.
        """

    async def close(self) -> None:
        """Close the connection."""
