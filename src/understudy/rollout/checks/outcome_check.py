"""Outcomes of open rollouts that name some, measured now and then: counting them takes longer than a tick may."""

from collections.abc import Awaitable, Callable, Sequence

from understudy.core.canary.evidence.check_input import Outcomes
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.statistics.difference import Difference
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.rollout.rollout_store import RolloutStore, RolloutView
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.rollout.analysis import policy_of
from understudy.rollout.checks.each_by_itself import EachByItself

Measure = Callable[[RolloutView, OutcomeLimit], Awaitable[Difference | None]]
"""Returns challenger less champion of an outcome that the rollout's plan names."""


class OutcomeCheck:
    """Keeps each rollout's latest measurements.

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
        self._latest: dict[int, list[Difference | None]] = {}
        """By rollout, in the order of its plan."""
        self._first: dict[int, int] = {}
        """The number of the outcome that comes first in a rollout's next turn."""
        self._turns: list[int] = []
        """The open rollouts, the one that waited longest first."""

    def latest(self, rollout_id: int) -> Outcomes:
        """Return the latest measurements, in the order of the plan; none while nothing was measured."""
        return tuple(self._latest.get(rollout_id, ()))

    async def tick(self, _epoch: Epoch) -> None:
        """Measure every rollout that wants it once; what there is no time for comes first in the next tick.

        Raises:
            Exception: The last failure, once all were asked for; a rollout that failed keeps the measurement before.
        """
        each = EachByItself()
        turns = self._in_turn(await self._store.open_ids())
        # The first one has the whole tick. When that is not enough, the others come before it in the next.
        self._turns = [*turns[1:], *turns[:1]]
        for rollout_id in turns:
            with each.one():
                await self._look(rollout_id)
            self._turns.remove(rollout_id)
            self._turns.append(rollout_id)
        each.end()

    def _in_turn(self, open_ids: Sequence[int]) -> list[int]:
        """Return the open rollouts, the one that waited longest first, and forget all others."""
        for rollout_id in self._shown.keys() - set(open_ids):
            self._show(rollout_id, None)
        self._latest = {rollout_id: found for rollout_id, found in self._latest.items() if rollout_id in open_ids}
        self._first = {rollout_id: number for rollout_id, number in self._first.items() if rollout_id in open_ids}
        known = [rollout_id for rollout_id in self._turns if rollout_id in open_ids]
        return [*(rollout_id for rollout_id in open_ids if rollout_id not in known), *known]

    async def _look(self, rollout_id: int) -> None:
        """Measure a rollout's outcomes, and begin where the time of the tick before was over."""
        view = await self._store.view(rollout_id)
        wanted = outcomes_wanted(view)
        if not wanted:
            self._latest.pop(rollout_id, None)
            self._show(rollout_id, None)
            return
        found = self._latest.setdefault(rollout_id, [None] * len(wanted))
        first = self._first.get(rollout_id, 0)
        for number in ((first + passed) % len(wanted) for passed in range(len(wanted))):
            # Before it is asked: one that takes the whole tick keeps no other from its turn.
            self._first[rollout_id] = (number + 1) % len(wanted)
            found[number] = await self._measure(view, wanted[number])
            ratios = [one.with_outcome_ratio for one in found if one is not None and one.with_outcome_ratio is not None]
            self._show(rollout_id, min(ratios, default=None), view.record.state.model_name)

    def _show(self, rollout_id: int, ratio: float | None, model_name: str = "") -> None:
        """Set a rollout's gauge, or drop it when there is nothing to tell."""
        if self._telemetry is None:
            return
        if ratio is not None:
            self._shown[rollout_id] = model_name
            self._telemetry.set("outcome_join_ratio", ratio, model_name)
        elif rollout_id in self._shown:
            self._telemetry.forget("outcome_join_ratio", self._shown.pop(rollout_id))


def outcomes_wanted(view: RolloutView) -> Sequence[OutcomeLimit]:
    """Return the outcomes that a rollout is to be judged by now."""
    state = view.record.state
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return policy_of(view).watched_outcomes if is_judged and state.plan.canary_policy != SEED else ()
