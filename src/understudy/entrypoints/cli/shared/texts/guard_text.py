"""What watches a model's split, in words: what its policy lets a guard do, and what the newest one found."""

from collections.abc import Sequence

from understudy.core.rollout.state import Kind, Phase
from understudy.ports.rollout.rollout_store import RolloutListing, RolloutRecord, UnreadableRollout

MEANINGS = {
    "rollback": "rollback: the monitor takes a share back that does worse",
    "alert": "alert: of a share that does worse the monitor alerts, and changes nothing",
    "off": "off: only rollouts are watched",
}
ON_DRIFT = {
    "alert": "alert: of a challenger that drifts from the champion on the same hours the monitor alerts",
    "rollback": "rollback: the monitor takes a challenger back that drifts from the champion on the same hours",
}


MAX_WATCHED = 5
"""Versions of a guard: the challenger, and as many further arms as the database allows."""


async def newest_guard(rollouts: RolloutListing, model: str) -> Sequence[RolloutRecord | UnreadableRollout]:
    """Return the guard that is open or was the last to end, by version; nothing where a rollout came after it.

    Where this release cannot read the newest of all, that is returned: whether it is a rollout or a guard.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    found = await rollouts.listing(model, MAX_WATCHED)
    newest = found[0] if found else None
    if newest is None or isinstance(newest, UnreadableRollout):
        return () if newest is None else (newest,)
    if newest.state.kind is not Kind.GUARD:
        return ()
    readable = [one for one in found if not isinstance(one, UnreadableRollout)]
    return [one for one in reversed(readable) if one.split_id == newest.split_id]


def drift_setting(mode: str) -> tuple[str, str]:
    """Return what the policy says of a challenger that drifts, as a fact."""
    return "on drift", ON_DRIFT.get(mode, mode)


def guard_words(mode: str, newest: Sequence[RolloutRecord | UnreadableRollout]) -> str:
    """Return what the policy's guard means, and which guards watch or failed."""
    return "; ".join(filter(None, [MEANINGS.get(mode, mode), *map(_guard_of_version, newest)]))


def _guard_of_version(newest: RolloutRecord | UnreadableRollout) -> str:
    if isinstance(newest, UnreadableRollout):
        return newest.problem
    state = newest.state
    if state.phase is Phase.FAILED or state.has_failed_guard:
        return f"guard {newest.id} failed: {state.reason}"
    if state.phase.is_final:
        return ""
    if state.promoted_at is not None:
        return f"guard {newest.id} watches champion {state.challenger} and keeps {state.champion} warm"
    return f"guard {newest.id} watches version {state.challenger} at {state.weight_percent} %"
