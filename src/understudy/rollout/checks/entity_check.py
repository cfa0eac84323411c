"""Entity check: counts the calls of each entity in open rollouts from the log, two minutes of calls at a time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from understudy.core.canary.entities.entity_tally import MAX_ENTITIES, UNIT_SECONDS, Before, EntityTally
from understudy.core.canary.entities.worst_entities import EntityCounts
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.state import Kind
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.prediction_history import EntityHistory, TrialAsked
from understudy.ports.rollout.rollout_store import RolloutStore, RolloutView
from understudy.rollout.checks.each_by_itself import EachByItself
from understudy.rollout.verdicts.entity_verdict import told_of

SHIPPED_SECONDS = 30.0
"""Rows come to the log so long after their calls; what comes later is not counted."""
READ_UNITS = 5
"""Stretches of one question to the log."""
READ_SECONDS = 4.0
"""After it a tick asks no further question; the next one goes on."""
MAX_READ = 50_000
"""Entities in the answer to one question, all stretches together."""
MAX_OF_GUARD = 5_000
"""Entities of a guard: each model may have one, for as long as its split lasts."""
BEFORE_SECONDS = 6 * 3_600.0
"""An hour does not tell what an entity fails that calls ten times in it."""
MAX_BEFORE_ROWS = 200_000


@dataclass
class _Kept:
    until: float
    """Up to where the log was read."""
    tally: EntityTally
    before: dict[str, Before] = field(default_factory=dict)
    """Of entities that were suspected, what they did before the rollout."""
    told: set[int] | None = None
    """Keys of the entities that an operator was told of; ``None`` until the events were read."""
    latest: EntityCounts | None = None


class EntityCheck:
    """Keeps the worst entities of each open rollout.

    Args:
        store: The rollouts.
        history: What the log holds of their calls.
    """

    def __init__(self, store: RolloutStore, history: EntityHistory) -> None:
        self._store = store
        self._history = history
        self._kept: dict[int, _Kept] = {}
        self._turns: list[int] = []
        """The open rollouts, the one that waited longest first."""

    def latest(self, rollout_id: int) -> EntityCounts | None:
        """Return the worst entities that no operator was told of; ``None`` while nothing is known."""
        kept = self._kept.get(rollout_id)
        return None if kept is None or kept.latest is None else kept.latest.without(kept.told or ())

    def told(self, rollout_id: int, keys: Sequence[int]) -> None:
        """Name these entities no more: an operator knows of them."""
        kept = self._kept.get(rollout_id)
        if kept is not None:
            kept.told = (kept.told or set()) | set(keys)

    async def tick(self, _epoch: Epoch) -> None:
        """Read on for each open rollout; what there is no time for comes first in the next tick.

        Raises:
            Exception: The last failure, once all were asked for; a rollout that failed keeps what was counted.
        """
        open_ids = await self._store.open_ids()
        self._kept = {rollout_id: kept for rollout_id, kept in self._kept.items() if rollout_id in open_ids}
        known = [rollout_id for rollout_id in self._turns if rollout_id in open_ids]
        self._turns = [*(rollout_id for rollout_id in open_ids if rollout_id not in known), *known]
        until = asyncio.get_running_loop().time() + READ_SECONDS
        each = EachByItself()
        for place, rollout_id in enumerate(list(self._turns)):
            if place and asyncio.get_running_loop().time() >= until:
                break
            self._turns.remove(rollout_id)
            self._turns.append(rollout_id)
            with each.one():
                await self._count(await self._store.view(rollout_id), until)
        each.end()

    async def _count(self, view: RolloutView, until: float) -> None:
        state = view.record.state
        is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
        if not is_judged or state.plan.canary_policy == SEED:
            return
        first = state.step_starts[0] // UNIT_SECONDS * UNIT_SECONDS
        kept = self._kept.get(view.record.id)
        if kept is None:
            most = MAX_OF_GUARD if state.kind is Kind.GUARD else MAX_ENTITIES
            kept = self._kept[view.record.id] = _Kept(first, EntityTally(most))
        settled = (view.read_at - SHIPPED_SECONDS) // UNIT_SECONDS * UNIT_SECONDS
        while kept.until < settled:
            await self._read(view, kept, min(settled, kept.until + READ_UNITS * UNIT_SECONDS))
            if asyncio.get_running_loop().time() >= until:
                break
        if suspects := kept.tally.suspects():
            if kept.told is None:
                kept.told = told_of(await self._store.events(view.record.id))
            await self._learn_before(view, kept, suspects)
        kept.latest = kept.tally.counts(kept.before)

    async def _read(self, view: RolloutView, kept: _Kept, until: float) -> None:
        record = view.record
        trial = TrialAsked(record.split_id, record.champion_id, record.challenger_id, kept.until, until)
        found = await self._history.entity_calls(trial, UNIT_SECONDS, MAX_READ)
        starts = sorted(found)
        if sum(map(len, found.values())) >= MAX_READ and len(starts) > 1:
            # The last stretch may have been cut off: the next question begins with it.
            until = float(starts.pop())
        for start in starts:
            kept.tally.add(found[start])
        kept.until = until

    async def _learn_before(self, view: RolloutView, kept: _Kept, suspects: Sequence[str]) -> None:
        unknown = [entity_id for entity_id in suspects if entity_id not in kept.before]
        if not unknown:
            return
        record, started = view.record, view.record.state.started_at
        found = await self._history.entities_before(
            record.champion_id, unknown, started - BEFORE_SECONDS, started, MAX_BEFORE_ROWS
        )
        kept.before |= {entity_id: found.get(entity_id, Before()) for entity_id in unknown}
