"""Builds windows from rows of the log while the log shipper ships them.

The shipper stages a batch, writes the rows and the staged windows in one transaction, and commits the staged batch when
the database has: what is written is each changed window's whole new state, so writing it again changes nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.prediction_log.call_slices import CATEGORY, ROUTED, Slice, slices_of
from understudy.core.prediction_log.row_record import NO_RECORDS, RowRecords
from understudy.core.routing.policy import Role
from understudy.core.routing.route import Reason
from understudy.core.windows.accumulator import WindowTally
from understudy.core.windows.caller_deadlines import Share, are_hurried, given_time
from understudy.core.windows.record_reader import read_records
from understudy.core.windows.row_reader import Columns, Shared, layout_of, read_columns, unescaped
from understudy.core.windows.seen_entities import SeenEntities
from understudy.core.windows.slices import SlicedCalls
from understudy.core.windows.window import WINDOW_SECONDS, Window, WindowKey

OPEN_SECONDS = 180
"""A window is kept open until rows this much younger were committed."""
MAX_OPEN_WINDOWS = 256
"""Past that many the oldest are closed early, but never those of the :data:`NEWEST_STARTS`."""
NEWEST_STARTS = 2
"""Calls come to the windows of the newest start, and for a moment still to those of the one before: closed, each batch
would make another row of each of them."""
MAX_NEWEST_WINDOWS = 4_096
"""Of all windows, the newest ones included: 12 KiB each without their entities (measured), 48 MiB."""
MAX_OPEN_ENTITIES = 262_144
"""Entities that are told apart in all open windows, 77 bytes each (measured). Past that each call of another counts as
one."""
MAX_ROLLOUTS = 8
"""Rollouts whose entities are remembered, 1 MiB each, although no policy may have them any more."""
MAX_OPEN_ROLLOUTS = 64
"""Rollouts whose entities are remembered at all. Past that the one that was met longest ago is forgotten, and from then
on no entity is new to it: none of its entities is ever counted twice, in whichever role."""
MAX_FORGOTTEN = 1_024
"""Rollouts that are known to be forgotten, those that were met last: 0.1 MiB."""

SlowThreshold = Callable[[int], int | None]
"""From a rollout's id to its threshold τ in microseconds: the champion's 95th percentile before it started."""

OpenRollouts = Callable[[], Collection[int] | None]
"""To the ids of the rollouts that policies have now; ``None`` while that is not known."""

ShareOf = Callable[[int, int], Share]
"""From a rollout's id and a generation of its policy to what versions had of a deadline there."""

_AS_CHALLENGER = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio. Any constant would do that changes many bits of a hash, which then stands for the
entity as a challenger's."""
_NO_TALLY = -1
_NO_ROLLOUT = -1
_GROUP_FACTS = np.dtype(
    [
        ("tally", np.intp),
        ("rollout", np.intp),
        ("is_challenger", "?"),
        ("is_compared", "?"),
        ("is_routed", "?"),
        ("is_fallback", "?"),
        ("least_us", np.float64),
    ]
)
"""A :class:`_Group`, whose tally and rollout are places in lists."""


class Staged(NamedTuple):
    """What a batch changes."""

    windows: tuple[Window, ...]
    """The new, whole state of each window that the batch touched."""
    unreadable_rows: int
    """Rows that are not what the proxy writes; they are in no window."""
    batch: "_Batch"


@dataclass(slots=True)
class _Open:
    """A committed window, and which of its entities are told apart."""

    window: Window
    entities: set[int] = field(default_factory=set)
    error_entities: set[int] = field(default_factory=set)
    own_error_entities: set[int] = field(default_factory=set)
    """Those with an error that the champion did not have as well."""


class _Group(NamedTuple):
    """What rows of one window have in common."""

    tally: WindowTally
    rollout_id: int
    is_challenger: bool
    is_compared: bool
    """Whether chance chose the version."""
    is_routed: bool
    """Whether the category chose it, in a rollout."""
    is_fallback: bool
    """Whether another version had to stand in, or tried to."""
    least_deadline_us: float
    """See :func:`understudy.core.windows.caller_deadlines.least_deadline_us`."""


class WindowBuilder:
    """The open windows of one shipper, in bounded memory.

    Args:
        shipper: A name that no other builder ever has, elsewhere or before a restart: a builder that forgot its windows
            would overwrite theirs, and call all entities new again.
        share_of: Of callers' deadlines.
        open_rollouts: Asked when many rollouts are remembered: the others go first; ``None``: all may be open.
    """

    def __init__(
        self,
        shipper: str,
        *,
        share_of: ShareOf = lambda _rollout_id, _generation: Share(),
        open_rollouts: OpenRollouts = lambda: None,
    ) -> None:
        self._shipper = shipper
        self.share_of = share_of
        self._open_rollouts = open_rollouts
        self._open: dict[WindowKey, _Open] = {}
        self._entities = 0
        """Of all open windows, those with an error twice, or thrice if the champion did not have it as well."""
        self._seen: dict[int, SeenEntities] = {}
        """By rollout; the one that was met last is the last one."""
        self._forgotten: dict[int, None] = {}
        """Rollouts in the same order."""
        self._closed_before = 0
        """Rows of windows that start earlier are late."""
        self._late_epoch = 1
        self._commits = 0

    def stage(
        self,
        rows: Sequence[bytes],
        columns: Sequence[str],
        slow_us_of: SlowThreshold,
        records: RowRecords = NO_RECORDS,
    ) -> Staged:
        """Return what the rows add; nothing is kept until :meth:`commit`.

        Args:
            rows: Lines of COPY text as they lie in the spool.
            columns: What their fields are. Rows that lack a column which windows need count as unreadable.
            slow_us_of: Without a threshold no call is slow.
            records: One for each row. Where they have what windows need, of the text only slices are read.
        """
        batch = _Batch(self, slow_us_of)
        read = read_records(records, rows, columns) or _read_text(rows, columns)
        unreadable_rows = len(rows) if read is None else read.unreadable_rows + batch.add(read)
        return Staged(batch.windows(), unreadable_rows, batch)

    def commit(self, staged: Staged) -> None:
        """Keep what was staged, once the same rows and windows are committed in the database.

        Raises:
            ValueError: Something else was committed since it was staged, which its windows do not hold.
        """
        batch = staged.batch
        if batch.after_commits != self._commits:
            raise ValueError("another batch was committed since this one was staged; stage its rows again")
        self._commits += 1
        self._late_epoch += any(window.key.epoch for window in staged.windows)
        for window in staged.windows:
            tally = batch.tallies[window.key]
            opened = self._open.setdefault(window.key, _Open(window))
            opened.window = window
            if self._entities < MAX_OPEN_ENTITIES:
                opened.entities |= tally.fresh
                opened.error_entities |= tally.fresh_with_error
                opened.own_error_entities |= tally.fresh_with_own_error
                self._entities += tally.fresh_entities
        for rollout_id, entities in batch.fresh.items():
            self._remember(rollout_id, entities)
        self._close()

    def opened(self, key: WindowKey) -> _Open:
        """Return what is committed of a window."""
        return self._open.get(key) or _Open(Window(key))

    def have_seen(self, rollout_id: int, entities: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether a rollout has met what each hash stands for; one that was forgotten may have met everything."""
        seen = self._seen.get(rollout_id)
        return np.full(entities.shape, rollout_id in self._forgotten) if seen is None else seen.have(entities)

    def key_of(self, version_id: int, role: Role, rollout_id: int, generation: int, start: int) -> WindowKey:
        """Return the key of the window that gets a row."""
        epoch = self._late_epoch if start < self._closed_before else 0
        return WindowKey(self._shipper, epoch, version_id, role, rollout_id, generation, start)

    @property
    def commits(self) -> int:
        """How many batches were committed."""
        return self._commits

    @property
    def rollouts(self) -> AbstractSet[int]:
        """The rollouts whose entities are remembered."""
        return self._seen.keys()

    def _remember(self, rollout_id: int, entities: set[int]) -> None:
        if rollout_id in self._forgotten:
            self._forgotten[rollout_id] = self._forgotten.pop(rollout_id)
            return
        is_known = rollout_id in self._seen
        seen = self._seen.pop(rollout_id) if is_known else SeenEntities()
        self._seen[rollout_id] = seen
        seen.remember(entities)
        if not is_known and len(self._seen) > MAX_ROLLOUTS:
            self._forget_rollouts()

    def _forget_rollouts(self) -> None:
        """Forget rollouts that are over, and open ones only of too many."""
        are_open = self._open_rollouts()
        over = [] if are_open is None else [rollout_id for rollout_id in self._seen if rollout_id not in are_open]
        gone = over[: len(self._seen) - MAX_ROLLOUTS]
        if len(self._seen) - len(gone) > MAX_OPEN_ROLLOUTS:
            gone = list(self._seen)[: len(self._seen) - MAX_OPEN_ROLLOUTS]
        for rollout_id in gone:
            del self._seen[rollout_id]
            self._forgotten[rollout_id] = None
        while len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def _close(self) -> None:
        """Forget windows that are old, and the oldest ones of too many or of too many entities."""
        opened_at: dict[int, list[_Open]] = {}
        for key, opened in self._open.items():
            opened_at.setdefault(key.start, []).append(opened)
        windows = self._entities = 0
        for place, start in enumerate(sorted(opened_at, reverse=True)):
            if place == 0:
                self._closed_before = max(self._closed_before, start - OPEN_SECONDS)
            windows += len(opened_at[start])
            entities = self._entities + sum(map(_entities_of, opened_at[start]))
            if start < self._closed_before or _are_too_many(windows, entities, is_new=place < NEWEST_STARTS):
                self._closed_before = max(self._closed_before, start + WINDOW_SECONDS)
                break
            self._entities = entities
        self._open = {key: opened for key, opened in self._open.items() if key.start >= self._closed_before}


def _are_too_many(windows: int, entities: int, *, is_new: bool) -> bool:
    """Whether the windows of a start cannot be open beside those of later ones, given the sums with its own."""
    if is_new:
        return windows > MAX_NEWEST_WINDOWS
    return windows > MAX_OPEN_WINDOWS or entities >= MAX_OPEN_ENTITIES


def _entities_of(opened: _Open) -> int:
    return len(opened.entities) + len(opened.error_entities) + len(opened.own_error_entities)


class _Batch:
    """What the rows of one batch come to, beside what the builder has committed."""

    def __init__(self, builder: WindowBuilder, slow_us_of: SlowThreshold) -> None:
        self._builder = builder
        self._slow_us_of = slow_us_of
        self.tallies: dict[WindowKey, WindowTally] = {}
        self.fresh: dict[int, set[int]] = {}
        """New entities of each rollout."""
        self.after_commits = builder.commits

    def windows(self) -> tuple[Window, ...]:
        return tuple(tally.window() for tally in self.tallies.values())

    def add(self, rows: Columns) -> int:
        """Add rows to the sums of their windows; return how many were left out, because their group cannot be read."""
        groups: list[_Group | None] = []
        unreadable_rows = 0
        for number, shared in enumerate(rows.groups):
            if shared is None:
                unreadable_rows += int(np.count_nonzero(rows.group == number))
            groups.append(None if shared is None or shared.reason is Reason.FORCED else self._new_group(shared))
        numbers = {tally: number for number, tally in enumerate(self.tallies.values())}
        rollouts = list(dict.fromkeys(group.rollout_id for group in groups if group is not None and group.rollout_id))
        facts = np.array([_facts_of(group, numbers, rollouts) for group in groups], _GROUP_FACTS)[rows.group]
        is_hit = rows.is_hit & ~facts["is_fallback"]
        is_counted = facts["is_compared"] & ~is_hit
        is_failed = facts["is_fallback"] | ~rows.is_ok
        is_shared = facts["is_fallback"] & ~rows.is_ok & ~rows.has_stood_in
        is_early = are_hurried(rows.deadline_us, rows.is_out_of_time, facts["least_us"])
        is_hurried = facts["is_compared"] & is_early
        is_routed = facts["is_routed"] & ~is_hit & ~is_shared & ~is_early
        # A hurried call that fails and one that is answered meet no new entity, so the split does not depend on which.
        facts["is_compared"] &= ~is_hurried
        is_new, is_new_in_role = self._meet_all(rows, facts, rollouts)
        # Stable: within a window the rows stay in their order.
        order = np.argsort(facts["tally"], kind="stable")
        borders = np.searchsorted(facts["tally"][order], np.arange(len(numbers) + 1))
        for tally, (start, end) in zip(numbers, pairwise(borders.tolist()), strict=True):
            mine = order[start:end]
            tally.volume += end - start
            tally.cache_hits += int(np.count_nonzero(is_hit[mine]))
            tally.new_entities += int(np.count_nonzero(is_new[mine]))
            tally.new_in_role += int(np.count_nonzero(is_new_in_role[mine]))
            counted = mine[is_counted[mine]]
            tally.add_deadlines(rows.deadline_us[counted])
            left_out, judged = counted[is_hurried[counted]], counted[~is_hurried[counted]]
            if left_out.size:
                tally.add_hurried(is_failed[left_out], rows.latency_us[left_out])
            self._judge(tally, rows, judged, is_failed, is_shared)
            self._count_routed(tally, rows, mine[is_routed[mine]], is_failed)
        return unreadable_rows

    def _judge(
        self,
        tally: WindowTally,
        rows: Columns,
        judged: NDArray[np.intp],
        is_failed: NDArray[np.bool_],
        is_shared: NDArray[np.bool_],
    ) -> None:
        """Add the judged rows of a window, given their places."""
        given = None
        if tally.is_in_rollout:
            given = given_time(rows.deadline_us[judged], rows.is_out_of_time[judged], tally.budget_ratio)
        failed = is_failed[judged] if given is None else is_failed[judged] & ~given.is_expired
        # An error that the champion had as well is no worse for a slice either.
        sliced = self._sliced(rows, judged, is_shared[judged]) if tally.is_in_rollout else None
        tally.add_calls(rows.entity[judged], failed, rows.latency_us[judged], rows.score[judged], given, sliced=sliced)
        tally.add_shared(rows.entity[judged][failed], is_shared[judged][failed])

    def _count_routed(
        self, tally: WindowTally, rows: Columns, routed: NDArray[np.intp], is_failed: NDArray[np.bool_]
    ) -> None:
        """Add calls that their category routed, or that are held out of that, to the slice of the route alone."""
        if not routed.size or not rows.slices_of[routed].any():
            return
        sets = [
            tuple(Slice(ROUTED, one.value) for one in slices_of(unescaped(text)) if one.feature == CATEGORY)
            for text in rows.slices
        ]
        sliced = SlicedCalls(sets, rows.slices_of[routed])
        given = given_time(rows.deadline_us[routed], rows.is_out_of_time[routed], tally.budget_ratio)
        failed = is_failed[routed] if given is None else is_failed[routed] & ~given.is_expired
        tally.add_routed(rows.entity[routed], failed, rows.latency_us[routed], given, sliced)

    def _sliced(self, rows: Columns, judged: NDArray[np.intp], is_left_out: NDArray[np.bool_]) -> SlicedCalls | None:
        """Return the slices of rows, given their places; ``None`` where none of them has any."""
        set_of = np.where(is_left_out, 0, rows.slices_of[judged])
        if not set_of.any():
            return None
        return SlicedCalls([slices_of(unescaped(text)) for text in rows.slices], set_of)

    def _new_group(self, shared: Shared) -> _Group:
        is_fallback = shared.assigned_id != shared.version_id
        role = Role.CHALLENGER if is_fallback else shared.role
        start = shared.second - shared.second % WINDOW_SECONDS
        key = self._builder.key_of(shared.assigned_id, role, shared.rollout_id, shared.generation, start)
        tally = self._tally(key)
        return _Group(
            tally,
            # A shadow's calls are copies: their entities were met in another role.
            0 if role is Role.SHADOW else shared.rollout_id,
            role is Role.CHALLENGER,
            shared.reason is not Reason.CATEGORY or role is Role.SHADOW,
            tally.is_in_rollout and shared.reason is Reason.CATEGORY and role is not Role.SHADOW,
            is_fallback,
            tally.least_deadline_us,
        )

    def _tally(self, key: WindowKey) -> WindowTally:
        tally = self.tallies.get(key)
        if tally is None:
            opened = self._builder.opened(key)
            slow_us = self._slow_us_of(key.rollout_id)
            share = self._builder.share_of(key.rollout_id, key.policy_generation)
            failing = opened.error_entities, opened.own_error_entities
            tally = WindowTally(opened.window, opened.entities, failing, slow_us, share)
            self.tallies[key] = tally
        return tally

    def _meet_all(
        self, rows: Columns, facts: NDArray[np.void], rollouts: Sequence[int]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows meet an entity that is new to their rollout, and which one that is new in their role."""
        is_new, is_new_in_role = np.zeros((2, rows.entity.size), np.bool_)
        rollout = np.where(facts["is_compared"], facts["rollout"], _NO_ROLLOUT)
        # By their first rows: of too many rollouts the builder keeps those that it met last.
        for number in dict.fromkeys(rollout[rollout != _NO_ROLLOUT].tolist()):
            there = np.flatnonzero(rollout == number)
            is_new[there], is_new_in_role[there] = self._meet_many(
                rollouts[number], rows.entity[there], facts["is_challenger"][there], rows.is_drawn[there]
            )
        return is_new, is_new_in_role

    def _meet_many(
        self,
        rollout_id: int,
        entities: NDArray[np.uint64],
        is_challenger: NDArray[np.bool_],
        is_drawn: NDArray[np.bool_],
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which entities, in the order they were met, are new to the rollout, and which in their role.

        Those that were drawn for one call never come back, and would fill the memory of those that do.
        """
        # What is asked one by one for each entity: its hash, then for a challenger's the one that stands for that.
        is_asked = np.column_stack((np.ones(entities.size, np.bool_), is_challenger))
        hashes, first = np.unique(
            np.column_stack((entities, entities ^ np.uint64(_AS_CHALLENGER)))[is_asked], return_index=True
        )
        is_fresh = ~self._builder.have_seen(rollout_id, hashes)
        stays = ~np.column_stack((is_drawn, is_drawn))[is_asked][first]
        self.fresh.setdefault(rollout_id, set()).update(hashes[is_fresh & stays].tolist())
        answers = np.zeros(np.count_nonzero(is_asked), np.bool_)
        answers[first[is_fresh]] = True
        is_new = np.zeros(is_asked.shape, np.bool_)
        is_new[is_asked] = answers
        return is_new[:, 0], np.where(is_challenger, is_new[:, 1], is_new[:, 0])


def _facts_of(
    group: _Group | None, numbers: Mapping[WindowTally, int], rollouts: Sequence[int]
) -> tuple[int, int, bool, bool, bool, bool, float]:
    """Return the :data:`_GROUP_FACTS` of a group; forced calls have none."""
    if group is None:
        return _NO_TALLY, _NO_ROLLOUT, False, False, False, False, 0.0
    rollout = rollouts.index(group.rollout_id) if group.rollout_id else _NO_ROLLOUT
    return numbers[group.tally], rollout, *group[2:]


def _read_text(rows: Sequence[bytes], columns: Sequence[str]) -> Columns | None:
    layout = layout_of(tuple(columns))
    return None if layout is None else read_columns(rows, layout)
