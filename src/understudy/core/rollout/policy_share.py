"""The share that the policy gives a rollout's challenger, which an operator may have set to another than the plan's."""

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.state import Kind, RolloutState


def policy_percent(state: RolloutState, policy: PolicySeen | None) -> int | None:
    """Return the challenger's share by the policy; ``None`` where it says nothing of the plan's.

    That is so once the rollout is over or the challenger promoted, and of a guard, whose plan is the share it found.
    """
    if policy is None or state.phase.is_final or state.promoted_at is not None or state.kind is Kind.GUARD:
        return None
    return policy.weight_percent if policy.challenger == state.challenger else 0
