"""What watches a model's split, in words: what its policy lets a guard do, and what the newest one found."""

from understudy.bootstrap.session import Session
from understudy.core.rollout.state import Kind, Phase
from understudy.ports.rollout_store import RolloutRecord

MEANINGS = {
    "rollback": "rollback: the monitor takes a share back that does worse",
    "alert": "alert: of a share that does worse the monitor alerts, and changes nothing",
    "off": "off: only rollouts are watched",
}


async def newest_guard(session: Session, model: str) -> RolloutRecord | None:
    """Return the guard that is open or was the last to end; ``None`` where a rollout came after it.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    newest = next(iter(await session.rollouts.list(model, 1)), None)
    return newest if newest is not None and newest.state.kind is Kind.GUARD else None


def guard_words(mode: str, newest: RolloutRecord | None) -> str:
    """Return what the policy's guard means, and which guard watches or failed."""
    meaning = MEANINGS.get(mode, mode)
    if newest is None:
        return meaning
    state = newest.state
    if state.phase is Phase.FAILED or state.has_failed_guard:
        return f"{meaning}; guard {newest.id} failed: {state.reason}"
    if state.phase.is_final:
        return meaning
    if state.promoted_at is not None:
        return f"{meaning}; guard {newest.id} watches champion {state.challenger} and keeps {state.champion} warm"
    return f"{meaning}; guard {newest.id} watches version {state.challenger} at {state.weight_percent} %"
