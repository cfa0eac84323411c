"""Who took a rollout, or a guard's share, back by hand, and why."""

import re

from understudy.core.rollout.state import Kind, RolloutState
from understudy.core.rollout.state_machine import BY_HAND
from understudy.ports.registry.registry import AuditEntry, AuditSubject, Registry

AUDIT_ENTRIES = 100
"""Of the policy's newest changes: one that ended a rollout is soon not the newest any more."""
_TAKEN_BACK = re.compile(
    r"over: (?:weight 0|there is no challenger any more|it has no share any more|no version has a share any more|"
    r"the champion before is back) in generation ([0-9]+)$"
)
"""What the database says of a guard that it ends because a change took its share back."""


async def manual_rollback(registry: Registry, state: RolloutState) -> AuditEntry | None:
    """Return the change that ended a rollout or a guard's share by hand: it saw only the policy that was there then.

    ``None`` where it ended otherwise or goes on, and where the change is not among the newest any more.

    Raises:
        RegistryUnavailable, MigrationNeeded: As the registry.
    """
    generation = _ended_by(state)
    if generation is None:
        return None
    changes = await registry.list_audit(state.model_name, AUDIT_ENTRIES, AuditSubject.POLICY)
    return next((entry for entry in changes if entry.generation == generation), None)


def _ended_by(state: RolloutState) -> int | None:
    """Return the generation of the change that ended it by hand; ``None`` where none did."""
    if state.kind is Kind.GUARD:
        found = _TAKEN_BACK.search(state.reason) if state.phase.is_final else None
        return None if found is None else int(found[1])
    return state.policy.generation if state.reason.startswith(BY_HAND) else None
