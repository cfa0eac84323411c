"""The windows of open rollouts, of which a tick reads only those that may still change.

A rollout of a day has thousands of windows for each proxy, and reading one takes some 50 µs: reading all of them at
once exceeds every deadline. So what is older than a few minutes is kept as strata, by blocks of a quarter of an
hour, each as long as Postgres says that nothing of it was written since: a proxy that had lost Postgres ships late, and
then its block is read again and no other. The newest block grows by a minute at a time, and only the minutes that are
new are read; at its end it is read once more, as a whole. Days of marks and then blocks are read one at a time, and
those that were read stay when time is over: the next tick goes on from there.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import is_
from typing import NamedTuple

from understudy.core.canary.latency.champion_before import ChampionBefore, champion_before
from understudy.core.windows.builder import OPEN_SECONDS
from understudy.core.windows.strata import Strata, join_strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS, Window
from understudy.ports.monitoring.window_log import (
    BLOCK_SECONDS,
    MARKED_SECONDS,
    STEP_SECONDS,
    WindowLog,
    window_block_start,
)
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView

SETTLED_SECONDS = OPEN_SECONDS + 4 * WINDOW_SECONDS
"""Windows that start longer ago are closed at every proxy that is not behind."""
EARLY_SECONDS = 3_600
"""How much earlier than their rollout windows may start that are read: no proxy has its windows before it began, but
its clock may be slow. Any login of a proxy can write windows of any day, and each day takes a query."""
BEFORE_SECONDS = 3_600
"""How much of the champion before a rollout says how far its pods wander."""
TURN_SECONDS = 5
"""Rollouts whose numbers follow each other take their steps this far apart, so that no tick has those of all."""


class _Block(NamedTuple):
    """Strata of a quarter of an hour or of a step, and the mark that its windows had just before they were read."""

    mark: str
    strata: Strata


class _Before(NamedTuple):
    """What the champion did before a rollout, and what was known when that was read."""

    known_by: tuple[bool, int | None]
    """Whether all of the hour had been shipped, and the threshold of slow answers."""
    champion: ChampionBefore


@dataclass
class _Kept:
    """What is known of a rollout's windows that start before a moment."""

    first: int
    """The start of the first block that is read."""
    surveyed: int
    """Until where the marks of all blocks were read, while they are read for the first time."""
    next_old: int
    """From where on old marks are read again next."""
    marks: Mapping[int, str] = field(default_factory=dict)
    """As Postgres last said, by the start of the block."""
    blocks: dict[int, _Block] = field(default_factory=dict)
    joined: Strata | None = None
    is_surveyed: bool = False
    """Whether the marks of all blocks were read once."""
    latest: Sequence[Window] = ()
    """The newer windows, as they were last read, of which with ``joined`` is ``whole``."""
    whole: Strata | None = None

    def survey(self, since: int, until: int, marks: Mapping[int, str]) -> None:
        """Take over the marks of the blocks from ``since`` to before ``until``; those without one are gone."""
        self.marks = {start: mark for start, mark in self.marks.items() if not since <= start < until} | dict(marks)
        gone = [start for start in self.blocks if start not in self.marks]
        for start in gone:
            del self.blocks[start]
        if gone:
            self.joined = self.whole = None

    def stale(self, settled: int) -> list[tuple[int, int]]:
        """Return from when to when windows are to be read, oldest first: blocks, and steps of the last one at once."""
        starts = sorted(s for s, mark in self.marks.items() if s not in self.blocks or self.blocks[s].mark != mark)
        growing = window_block_start(settled)
        blocks = [(start, start + BLOCK_SECONDS) for start in starts if start < growing]
        steps = [(start, settled) for start in starts if start >= growing]
        return [*blocks, *steps[:1]]

    def put(self, marks: Mapping[int, str], strata: Strata, settled: int) -> None:
        """Take over what was read of the blocks or steps with these marks, which are of before that.

        What was written since in others is left out: these have their marks the next time.
        """
        for start, mark in marks.items():
            self.blocks[start] = _Block(mark, strata.between(start, _end_of(start, settled)))
        self.joined = self.whole = None

    def join(self, newer: Strata, settled: int) -> None:
        """Put the blocks and what starts at ``settled`` or later side by side.

        All else that is kept is a part of the whole then, so that nothing is held twice.
        """
        if not self.blocks:
            self.whole = newer
            return
        starts = sorted(self.blocks)
        older = [self.joined] if self.joined is not None else [self.blocks[start].strata for start in starts]
        self.whole = join_strata([*older, newer])
        self.joined = self.whole.between(starts[0], settled)
        for start in starts:
            strata = self.whole.between(start, _end_of(start, settled))
            self.blocks[start] = self.blocks[start]._replace(strata=strata)


class WindowCache:
    """Remembers strata of several rollouts.

    Args:
        windows: The windows.
    """

    def __init__(self, windows: WindowLog) -> None:
        self._windows = windows
        self._kept: dict[int, _Kept] = {}
        self._before: dict[int, _Before] = {}
        """By rollout."""

    async def with_champion_before(self, view: RolloutView) -> RolloutView:
        """Return a view that has what the champion did in the hour before, if there is anything to be judged."""
        record = view.record
        if not record.state.step_starts or record.state.promoted_at is not None:
            return view
        # It is read once more when all of the hour is shipped, and when the threshold of slow answers is learnt.
        known_by = (view.read_at >= record.state.started_at + SETTLED_SECONDS, record.slow_us)
        kept = self._before.get(record.id)
        if kept is None or kept.known_by != known_by:
            kept = _Before(known_by, await self._read_before(record))
            self._before[record.id] = kept
        return view._replace(champion_before=kept.champion)

    async def _read_before(self, record: RolloutRecord) -> ChampionBefore:
        started = record.state.started_at
        windows = await self._windows.of_versions([record.champion_id], started - BEFORE_SECONDS, started)
        return await asyncio.to_thread(champion_before, windows, record.slow_us)

    async def strata(self, rollout_id: int, now: float, *, started_at: float, seconds: float = inf) -> Strata | None:
        """Return what :func:`stratify` makes of all windows of a rollout.

        Args:
            rollout_id: The rollout.
            now: Seconds since the epoch.
            started_at: When the rollout began. Windows that start :data:`EARLY_SECONDS` earlier are left out.
            seconds: After this time no further day of marks and no further block is read. Then there is nothing to
                return yet, and ``None`` is; the next call goes on with the day or the block that comes next. One is
                read in any case.
        """
        turn = rollout_id * TURN_SECONDS % STEP_SECONDS
        settled = int((now - SETTLED_SECONDS - turn) // STEP_SECONDS * STEP_SECONDS)
        until = asyncio.get_running_loop().time() + seconds
        first = max(0, window_block_start(started_at - EARLY_SECONDS))
        kept = self._kept.setdefault(rollout_id, _Kept(first, surveyed=first, next_old=first))
        latest = await self._survey(kept, rollout_id, settled, until)
        if latest is None:
            return None
        for place, (start, end) in enumerate(kept.stale(settled)):
            if place and asyncio.get_running_loop().time() >= until:
                return None
            # From before the windows, so that what is written meanwhile is read again.
            marks = {step: mark for step, mark in kept.marks.items() if start <= step < end}
            windows = await self._windows.of_rollout(rollout_id, start, end)
            kept.put(marks, await asyncio.to_thread(stratify, windows, rollout_id), settled)
        if kept.whole is None or not _are_same(kept.latest, latest):
            kept.latest = latest
            await asyncio.to_thread(_join, kept, rollout_id, settled)
        return kept.whole

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Keep nothing of rollouts but these."""
        self._kept = {rollout_id: kept for rollout_id, kept in self._kept.items() if rollout_id in rollout_ids}
        self._before = {rollout_id: seen for rollout_id, seen in self._before.items() if rollout_id in rollout_ids}

    async def _survey(self, kept: _Kept, rollout_id: int, settled: int, until: float) -> Sequence[Window] | None:
        """Read the marks of the last day, and of one more day in turn; at first of all days.

        Return what is newer. ``None``: not all days were read for the first time when it was ``until``, by the clock of
        the event loop.
        """
        since = max(kept.first, window_block_start(settled - MARKED_SECONDS)) if kept.is_surveyed else kept.surveyed
        if kept.is_surveyed and kept.next_old < since:
            old = await self._windows.marks_of_rollout(rollout_id, kept.next_old, since)
            kept.survey(kept.next_old, old.until, old.marks)
            kept.next_old = old.until if old.until < since else kept.first
        while True:
            latest = await self._windows.latest_of_rollout(rollout_id, since, settled)
            kept.survey(since, latest.marks.until, latest.marks.marks)
            since = kept.surveyed = latest.marks.until
            if since >= settled:
                kept.is_surveyed = True
                return latest.windows
            if not kept.is_surveyed and asyncio.get_running_loop().time() >= until:
                return None


def _end_of(start: int, settled: int) -> int:
    """Return where the block or the step ends that starts then."""
    return start + (BLOCK_SECONDS if start < window_block_start(settled) else STEP_SECONDS)


def _are_same(before: Sequence[Window], now: Sequence[Window]) -> bool:
    """Return whether a log read the same windows again: of an unchanged row it returns the same object."""
    return len(before) == len(now) and all(map(is_, before, now))


def _join(kept: _Kept, rollout_id: int, settled: int) -> None:
    kept.join(stratify(kept.latest, rollout_id), settled)
