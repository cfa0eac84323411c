"""Conflicts of a rollout with its policy: whether that was changed outside the rollout, and what was changed."""

from dataclasses import replace

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.state import Kind, RolloutState, WaitingFor


def at_seen_generation(state: RolloutState, seen: PolicySeen | None) -> RolloutState:
    """Return the rollout at the policy's generation when only fields changed there that are no conflict.

    Such fields send no call elsewhere. The state need not be stored: the next tick comes to the same.
    """
    if seen is None or seen.generation <= state.policy.generation or not seen.is_as(state.policy):
        return state
    return replace(state, policy=seen)


def is_new_conflict(state: RolloutState, seen: PolicySeen) -> bool:
    """Whether the policy was changed outside the rollout, and the rollout does not wait because of it yet."""
    known = state.is_in_place(seen) or state.has_unapplied_action(seen)
    return not known and state.waiting_for is not WaitingFor.CONFLICT


def are_roles_ours(state: RolloutState, seen: PolicySeen) -> bool:
    """Whether the policy's roles are still the rollout's own, before or after the promotion."""
    before, after = (state.champion, state.challenger), (state.challenger, None)
    roles = (seen.champion, seen.challenger)
    is_ours = roles == before or (state.promoted_at is not None and roles == after)
    if state.kind is Kind.GUARD and state.promoted_at is not None:
        # An operator may name a challenger for later.
        is_ours = seen.champion == state.challenger
    return is_ours and seen.rollout_id == state.rollout_id


def conflict_words(ours: PolicySeen, seen: PolicySeen | None) -> str:
    """Return what was changed in the policy outside the rollout."""
    if seen is None:
        return "the model has no policy any more"
    if seen.is_as(ours._replace(salt=seen.salt)):
        other_entities = f"under generation {seen.generation} other entities meet the challenger"
        return f"the salt was changed outside the rollout: {other_entities}"
    is_now = f"champion {seen.champion}, challenger {seen.challenger or 'none'} at {seen.weight_percent} %"
    was = f"champion {ours.champion}, challenger {ours.challenger or 'none'} at {ours.weight_percent} %"
    changed = f"generation {seen.generation} has {is_now}; this rollout left {was}"
    return f"the policy was changed outside the rollout: {changed}"
