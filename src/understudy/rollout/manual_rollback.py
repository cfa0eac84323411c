"""Who rolled a rollout back by hand, and why."""

from understudy.core.rollout.state import RolloutState
from understudy.core.rollout.state_machine import BY_HAND
from understudy.ports.registry.registry import AuditEntry, AuditSubject, Registry

AUDIT_ENTRIES = 100
"""Of the policy's newest changes: one that ended a rollout is soon not the newest any more."""


async def manual_rollback(registry: Registry, state: RolloutState) -> AuditEntry | None:
    """Return the change that ended a rollout by hand: the rollout itself saw only the policy that was there then.

    ``None`` where it ended otherwise or goes on, and where the change is not among the newest any more.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the registry.
    """
    if not state.reason.startswith(BY_HAND):
        return None
    changes = await registry.list_audit(state.model_name, AUDIT_ENTRIES, AuditSubject.POLICY)
    return next((entry for entry in changes if entry.generation == state.policy.generation), None)
