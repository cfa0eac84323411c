"""Slices of open rollouts, added up from windows beside the tick, two minutes of them at a time, a few rollouts a turn.

The two minutes of all rollouts end at the same moment. If all were added up then, one second would have the work of a
minute, and a rollback might wait for it; so each rollout has its turn within a minute.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.canary.slices.failing_slices import UNIT_SECONDS, SliceCounts
from understudy.core.canary.slices.slice_tally import SliceTally, slice_units
from understudy.core.rollout.state import Kind, RolloutState
from understudy.core.windows.window import Window
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import RecordSeen, RolloutRecord, RolloutStore
from understudy.rollout.analysis import policy_in
from understudy.rollout.verdicts.slice_verdict import told_slices

SHIPPED_SECONDS = 30.0
"""Windows are complete so long after their end; what comes later is not counted."""
READ_UNITS = 15
"""Stretches of one question for windows."""
TURNS = 12
"""In so many ticks each open rollout has its turn once; a tick has as many of them as that takes, one at least."""
READ_SECONDS = 0.4
PAST_SECONDS = 86_400.0
"""A monitor that takes over reads so much of a rollout's past at most: evidence that began earlier is lost."""


@dataclass
class _Kept:
    until: float
    """Up to where the windows were read."""
    tally: SliceTally
    told: set[str] | None = None
    """Slices that an operator was told of; ``None`` until the events were read."""
    latest: SliceCounts | None = None


class _Turn(NamedTuple):
    """When a tick ends, by the clock of the event loop."""

    until: float

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self.until


class SliceCheck:
    """Keeps the worst slices of each open rollout.

    Args:
        store: The rollouts.
        windows: What the versions did.
        read_seconds: After it a tick asks no further question; the next one goes on.
    """

    def __init__(self, store: RolloutStore, windows: WindowLog, *, read_seconds: float = READ_SECONDS) -> None:
        self._store = store
        self._windows = windows
        self._read_seconds = read_seconds
        self._kept: dict[int, _Kept] = {}
        self._turns: list[int] = []
        """The open rollouts, the one that waited longest first."""

    def latest(self, rollout_id: int) -> SliceCounts | None:
        """Return the worst slices that no operator was told of; ``None`` while nothing is known."""
        kept = self._kept.get(rollout_id)
        return None if kept is None or kept.latest is None else kept.latest.without(kept.told or ())

    def told(self, rollout_id: int, named: Sequence[str]) -> None:
        """Name these slices no more: an operator knows of them."""
        kept = self._kept.get(rollout_id)
        if kept is not None:
            kept.told = (kept.told or set()) | set(named)

    async def tick(self, _epoch: Epoch) -> None:
        """Read on for the open rollouts whose turn it is; what there is no time for comes first in the next tick.

        Raises:
            Exception: The last failure, once these were asked for; a rollout that failed keeps what was counted.
        """
        open_ids = await self._store.open_ids()
        self._kept = {rollout_id: kept for rollout_id, kept in self._kept.items() if rollout_id in open_ids}
        known = [rollout_id for rollout_id in self._turns if rollout_id in open_ids]
        self._turns = [*(rollout_id for rollout_id in open_ids if rollout_id not in known), *known]
        turn = _Turn(asyncio.get_running_loop().time() + self._read_seconds)
        failure: Exception | None = None
        async with self._store.shared_session(), self._windows.shared_session():
            for place, rollout_id in enumerate(self._turns[: ceil(len(self._turns) / TURNS)]):
                if place and turn.is_over:
                    break
                self._turns.remove(rollout_id)
                self._turns.append(rollout_id)
                try:
                    await self._count(await self._store.record(rollout_id), turn)
                except Exception as problem:  # noqa: BLE001 - windows that cannot be read keep no other from its own
                    failure = problem
        if failure is not None:
            raise failure

    async def _count(self, seen: RecordSeen, turn: _Turn) -> None:
        record = seen.record
        if not _is_compared(record.state):
            self._kept.pop(record.id, None)
            return
        kept = self._kept.get(record.id)
        if kept is None:
            kept = self._kept[record.id] = _begun(seen)
        settled = (seen.read_at - SHIPPED_SECONDS) // UNIT_SECONDS * UNIT_SECONDS
        if kept.until >= settled and kept.latest is not None:
            return  # a stretch is longer than the time between two ticks: often there is nothing to add
        is_first = True
        while kept.until < settled and (is_first or not turn.is_over):
            is_first = False
            await self._read(record, kept, min(settled, kept.until + READ_UNITS * UNIT_SECONDS))
        kept.latest = await asyncio.to_thread(kept.tally.counts)
        if kept.latest.worst and kept.told is None:
            kept.told = told_slices(await self._store.events(record.id))

    async def _read(self, record: RolloutRecord, kept: _Kept, until: float) -> None:
        windows = await self._windows.slices_of_rollout(record.id, kept.until, until)
        starts = record.state.step_starts

        await asyncio.to_thread(add_windows, kept.tally, windows, record.id, starts)
        kept.until = until


def are_slices_judged(state: RolloutState) -> bool:
    """Whether the plan has slices judged."""
    return state.plan.canary_policy != SEED and policy_in(state).slices != "off"


def new_tally(state: RolloutState) -> SliceTally:
    """Return the tally of a rollout whose first step has begun."""
    return SliceTally(_planned(state), state.step_starts[0] + policy_in(state).warm_up_seconds)


def add_windows(tally: SliceTally, windows: Sequence[Window], rollout_id: int, step_starts: Sequence[float]) -> None:
    """Add up windows in stretches of two minutes, all of a stretch at once."""
    for unit in slice_units(windows, rollout_id):
        tally.add(unit, [start for start in step_starts if start <= unit.start])


def _is_compared(state: RolloutState) -> bool:
    is_judged = bool(state.step_starts) and state.promoted_at is None and not state.phase.is_final
    return is_judged and are_slices_judged(state)


def _begun(seen: RecordSeen) -> _Kept:
    state = seen.record.state
    since = max(state.step_starts[0], seen.read_at - PAST_SECONDS)
    return _Kept(since // UNIT_SECONDS * UNIT_SECONDS, new_tally(state))


def _planned(state: RolloutState) -> int:
    """Return how many steps the evidence is shared by: a guard has one, as in the analysis."""
    return 1 if state.kind is Kind.GUARD else len(state.plan.steps)
