"""Outcomes of open rollouts that declared one, measured now and then: counting them takes longer than a tick may."""

from collections.abc import Awaitable, Callable, Sequence

from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.statistics.difference import Difference
from understudy.ports.lease import Epoch
from understudy.ports.rollout_store import RolloutStore, RolloutView
from understudy.ports.telemetry import Telemetry
from understudy.rollout.analysis import policy_of

Measure = Callable[[RolloutView], Awaitable[Difference | None]]
"""Returns challenger less champion of the outcome that the rollout's policy names."""


class OutcomeCheck:
    """Keeps each rollout's latest measurement.

    Args:
        store: The rollouts.
        measure: Asks for the outcomes.
        telemetry: Gets the share of entities that have one, if it is given.
    """

    def __init__(self, store: RolloutStore, measure: Measure, telemetry: Telemetry | None = None) -> None:
        self._store = store
        self._measure = measure
        self._telemetry = telemetry
        self._shown: dict[int, str] = {}
        """The model of each rollout that has a gauge."""
        self._latest: dict[int, Difference] = {}
        self._turns: list[int] = []
        """The open rollouts, the one that waited longest first."""

    def latest(self, rollout_id: int) -> Difference | None:
        """Return the latest measurement; ``None`` while there is none."""
        return self._latest.get(rollout_id)

    async def tick(self, _epoch: Epoch) -> None:
        """Measure every rollout that wants it once; what there is no time for comes first in the next tick.

        Raises:
            Exception: The last failure, once all were asked for; a rollout that failed keeps the measurement before.
        """
        failure: Exception | None = None
        turns = self._in_turn(await self._store.open_ids())
        # The first one has the whole tick. When that is not enough, the others come before it in the next.
        self._turns = [*turns[1:], *turns[:1]]
        for rollout_id in turns:
            try:
                self._keep(rollout_id, await self._found(rollout_id))
            except Exception as problem:  # noqa: BLE001 - a row that cannot be read keeps no other from its own
                failure = problem
            self._turns.remove(rollout_id)
            self._turns.append(rollout_id)
        if failure is not None:
            raise failure

    def _in_turn(self, open_ids: Sequence[int]) -> list[int]:
        """Return the open rollouts, the one that waited longest first, and forget all others."""
        for rollout_id in self._shown.keys() - set(open_ids):
            self._show(rollout_id, None)
        self._latest = {rollout_id: found for rollout_id, found in self._latest.items() if rollout_id in open_ids}
        known = [rollout_id for rollout_id in self._turns if rollout_id in open_ids]
        return [*(rollout_id for rollout_id in open_ids if rollout_id not in known), *known]

    def _keep(self, rollout_id: int, found: Difference | None) -> None:
        self._latest.pop(rollout_id, None)
        if found is not None:
            self._latest[rollout_id] = found

    async def _found(self, rollout_id: int) -> Difference | None:
        view = await self._store.view(rollout_id)
        found = await self._measure(view) if wants_outcome(view) else None
        self._show(rollout_id, None if found is None else found.with_outcome_ratio, view.record.state.model_name)
        return found

    def _show(self, rollout_id: int, ratio: float | None, model_name: str = "") -> None:
        """Set a rollout's gauge, or drop it when there is nothing to tell."""
        if self._telemetry is None:
            return
        if ratio is not None:
            self._shown[rollout_id] = model_name
            self._telemetry.set("outcome_join_ratio", ratio, model_name)
        elif rollout_id in self._shown:
            self._telemetry.forget("outcome_join_ratio", self._shown.pop(rollout_id))


def wants_outcome(view: RolloutView) -> bool:
    """Whether a rollout is to be judged by an outcome now."""
    state = view.record.state
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return is_judged and state.plan.canary_policy != SEED and policy_of(view).outcome is not None
