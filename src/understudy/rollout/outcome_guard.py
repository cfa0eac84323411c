"""Outcomes of open rollouts that declared one, measured now and then: counting them takes longer than a look may."""

from collections.abc import Awaitable, Callable

from understudy.core.ab import Difference
from understudy.errors import UnderstudyError
from understudy.ports import Epoch, RolloutStore, RolloutView
from understudy.rollout.look import policy_of

Measure = Callable[[RolloutView], Awaitable[Difference | None]]
"""Returns challenger less champion of the outcome that the rollout's policy names."""


class OutcomeGuard:
    """Keeps each rollout's latest measurement.

    Args:
        store: The rollouts.
        measure: Asks for the outcomes.
    """

    def __init__(self, store: RolloutStore, measure: Measure) -> None:
        self._store = store
        self._measure = measure
        self._latest: dict[int, Difference] = {}

    def latest(self, rollout_id: int) -> Difference | None:
        """Return the latest measurement; ``None`` while there is none."""
        return self._latest.get(rollout_id)

    async def tick(self, _epoch: Epoch) -> None:
        """Measure every rollout that wants it once.

        Raises:
            UnderstudyError: The last failure, once all were asked for.
        """
        failure: UnderstudyError | None = None
        measured: dict[int, Difference] = {}
        for rollout_id in await self._store.open_ids():
            view = await self._store.view(rollout_id)
            if not wants_outcome(view):
                continue
            try:
                found = await self._measure(view)
            except UnderstudyError as problem:
                found, failure = self._latest.get(rollout_id), problem
            if found is not None:
                measured[rollout_id] = found
        self._latest = measured
        if failure is not None:
            raise failure


def wants_outcome(view: RolloutView) -> bool:
    """Whether a rollout is to be judged by an outcome now."""
    state = view.record.state
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return is_judged and state.plan.canary_policy != "seed" and policy_of(view).outcome is not None
