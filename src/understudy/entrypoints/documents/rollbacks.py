"""Manual rollbacks as JSON; it imports nothing of rollouts, so that the command starts at once."""

from typing import Any

from understudy.ports.rollout.rollout_store import PolicyReach, RollbackRecord
from understudy.rollout.propagation import Propagation

_TOLD_APART = ("stale", "proxies_hidden")


def rollback_document(done: RollbackRecord, confirmed: Propagation | None) -> dict[str, Any]:
    """Return a manual rollback as JSON.

    ``confirmed`` is ``None`` where the caller did not wait for proxies, and where their reports could not be read.
    """
    return {
        **{name: value for name, value in done._asdict().items() if name != "without_calls"},
        "changed": done.changed,
        "confirmed": None if confirmed is None or confirmed.proxies_hidden else _confirmed_document(confirmed),
    }


def reach_document(reach: PolicyReach) -> dict[str, Any]:
    """Return how far a policy has come as JSON, without the calls under way, whose versions are ids there."""
    return {
        "generation": reach.generation,
        "proxies": reach.proxies,
        "proxies_on_generation": reach.proxies_on_generation,
        "proxies_hidden": reach.proxies_hidden,
        "silent": reach.stale.to_json(),
    }


def _confirmed_document(confirmed: Propagation) -> dict[str, Any]:
    numbers = {name: value for name, value in confirmed._asdict().items() if name not in _TOLD_APART}
    return {**numbers, "silent": confirmed.stale.to_json()}
