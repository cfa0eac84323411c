"""Errors that the champion had as well: whether an operator was told, which is read from a rollout's events."""

from collections.abc import Collection, Mapping
from typing import Any

from understudy.core.canary.decision import Decision
from understudy.core.rollout.state import Phase, RolloutState, WaitingFor
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutStore

_KEY, _TELLS, _TOLD = "shared_errors", "tells", "told"


class SharedErrors:
    """Remembers of which open rollouts an operator was told.

    Args:
        store: The rollouts' events, for what an earlier monitor told.
    """

    def __init__(self, store: RolloutStore) -> None:
        self._store = store
        self._told: set[int] = set()

    def is_known(self, rollout_id: int) -> bool:
        """Return whether this monitor knows that an operator was told."""
        return rollout_id in self._told

    async def was_told(self, rollout_id: int) -> bool:
        """Return whether an operator was told, by whichever monitor.

        Raises:
            RegistryUnavailable: As the store.
        """
        if any(_tells(event) for event in await self._store.events(rollout_id)):
            self._told.add(rollout_id)
        return rollout_id in self._told

    def tell(self, rollout_id: int) -> None:
        """Remember that an operator is told now."""
        self._told.add(rollout_id)

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Keep nothing of rollouts but these."""
        self._told &= set(rollout_ids)


def are_told_now(decision: Decision | None, after: RolloutState) -> bool:
    """Return whether a rollout waits because of such errors; a change of the policy may be why it waits."""
    return decision is not None and decision.has_shared_errors and after.waiting_for is WaitingFor.TIME


def stored_shared_errors(*, are_told: bool, tells: bool) -> dict[str, Any]:
    """Return what is stored of it with a verdict: what an operator knew then, or is told with it."""
    return {_KEY: _TOLD} if are_told else {_KEY: _TELLS} if tells else {}


def were_told(inputs: Mapping[str, Any]) -> bool:
    """Return whether an operator knew of such errors when a stored verdict was made."""
    return inputs.get(_KEY) == _TOLD


def _tells(event: RolloutEventRecord) -> bool:
    return event.phase == Phase.WAITING and event.inputs.get(_KEY) == _TELLS
