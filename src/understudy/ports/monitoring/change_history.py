"""Port of what changed around a model of late."""

from typing import Protocol

from understudy.core.alerts.recent_changes import RecentChanges


class ChangeHistory(Protocol):
    """The audits, the traffic and the drift of models.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def recent(self, model_name: str) -> RecentChanges:
        """Return what changed around a model within the last hour; nothing of a model that there is not."""
