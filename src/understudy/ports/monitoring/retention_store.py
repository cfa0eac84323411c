"""Tables that age bounds."""

from enum import StrEnum
from typing import Protocol

from understudy.ports.monitoring.lease import Epoch


class GrowingTable(StrEnum):
    """What the control loop and its callers write to without end, and age lets go of."""

    ALERTS = "AlertOutbox"
    """Never what an open incident is known by, nor what was not delivered of it."""
    OUTCOMES = "OutcomeEvent"
    ROLLOUT_EVENTS = "RolloutEvent"
    """Of finished rollouts; the last verdict stays, without what it rested on."""
    ROLLOUTS = "Rollout"
    """Finished ones; a model's newest stays."""
    AUDIT = "PolicyAudit"
    """What a policy was at the age's beginning stays, and so does all of an open rollout."""
    REGISTRY_AUDIT = "RegistryAudit"
    ERASURES = "EntityErasure"
    """Finished ones; late rows of what they erased are known by them so long."""
    DEAD_LETTERS = "PredictionDeadLetter"
    """Beside the age a number of rows is a bound."""
    SPOOL_OFFSETS = "SpoolOffset"
    """Of spools that no proxy has had on disk for that long."""
    POLICY_CHANGES = "PolicyChange"
    """Of versions; a policy's own row holds its generation and stays."""
    WARM_UPS = "WarmUpRequest"
    """With their answers."""
    NOTIFICATIONS = "Notification"
    """Those that were delivered or given up."""


class RetentionStore(Protocol):
    """Tables that age is the bound of. Raises as :class:`MetricStore` does; ages are by Postgres' clock."""

    async def forget(self, table: GrowingTable, days: float, at_most: int, *, epoch: Epoch) -> int:
        """Let go of rows that are older, at most so many; return how many, fewer than ``at_most`` when no more are."""
