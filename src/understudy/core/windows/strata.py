"""Strata: what champion and challenger did in the same fifteen-second window, side by side, as columns.

Every comparison is made within a window and then summed over windows. Pooled over a rollout, in which the weight grows
while the traffic changes, two equal versions differ (statistics page, §1: 100 % false alarms against 5 %).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.routing.policy import Role
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.tail import beyond_step, cell_entries, counts_beyond_step, no_tails, tail_entries
from understudy.core.windows.window import MICRO, WINDOW_SECONDS, BucketColumn, Window

FloatArray = NDArray[np.float64]

_COLUMNS = (
    "calls",
    "errors",
    "entities",
    "error_entities",
    "slow_low",
    "slow_high",
    "log_latency",
    "log_latency_squares",
    "score_calls",
    "score",
    "score_squares",
    # Stored verdicts of earlier releases have none of these, so they are the last ones.
    "hurried_calls",
    "expired_calls",
    "shared_error_entities",
)
_sums_of = attrgetter(*_COLUMNS)
_IN_MILLIONTHS = ("log_latency", "log_latency_squares", "score", "score_squares")
_UNITS = np.array([1 / MICRO if name in _IN_MILLIONTHS else 1.0 for name in _COLUMNS])
_SLOW = (("slow_low", BucketColumn.SLOW_LOW), ("slow_high", BucketColumn.SLOW_HIGH))
_BUCKET_UNITS = np.ones((len(BucketColumn), 1, 1))
_BUCKET_UNITS[[BucketColumn.LOG_LATENCY, BucketColumn.SCORE]] = 1 / MICRO


@dataclass(frozen=True, eq=False)
class Side:
    """One role's windows: ``sums`` has shape (windows, columns), ``buckets`` (bucket columns, windows, 64)."""

    sums: FloatArray
    buckets: FloatArray
    tails: NDArray[np.int64] = field(default_factory=no_tails)
    """Few of the cells of :mod:`understudy.core.windows.tail` hold anything: a row for each that does, of window, cell
    and count."""
    shared: NDArray[np.int64] = field(default_factory=no_tails)
    """Errors that the champion had as well, in rows of window, analysis bucket and count: mostly there are none."""

    @classmethod
    def of_stored(
        cls, sums: FloatArray, buckets: FloatArray, tails: NDArray[np.int64], shared: NDArray[np.int64]
    ) -> "Side":
        """Return a side that this release or another one stored, with 0 in columns that the other one did not have."""
        missing = len(_COLUMNS) - sums.shape[1]
        return cls(np.pad(sums, ((0, 0), (0, missing))) if missing > 0 else sums, buckets, tails, shared)

    def __getitem__(self, name: str) -> FloatArray:
        """Return a sum of each window, by the name of the window's field."""
        column: FloatArray = self.sums[:, _COLUMNS.index(name)]
        return column

    @property
    def answered(self) -> FloatArray:
        """Judged calls that were no error, of each window."""
        return self["calls"] - self["errors"]

    def bucket(self, column: BucketColumn) -> FloatArray:
        """Return a bucket column, shape (windows, 64)."""
        found: FloatArray = self.buckets[column]
        return found

    @cached_property
    def bucket_answered(self) -> FloatArray:
        """Judged calls that were no error, shape (windows, 64); several checks ask for them."""
        return self.bucket(BucketColumn.CALLS) - self.bucket(BucketColumn.ERRORS)

    @property
    def bucket_shared(self) -> FloatArray:
        """Errors that the champion had as well, shape (windows, 64)."""
        places, buckets, counts = self.shared.T
        found = np.zeros(len(self.sums) * ANALYSIS_BUCKETS)
        np.add.at(found, places * ANALYSIS_BUCKETS + buckets, counts)
        return found.reshape(len(self.sums), ANALYSIS_BUCKETS)

    def is_equal(self, other: "Side") -> bool:
        """Return whether both hold the same numbers."""
        mine = (self.sums, self.buckets, self.tails, self.shared)
        return all(map(np.array_equal, mine, (other.sums, other.buckets, other.tails, other.shared)))

    def cut(self, first: int, end: int) -> "Side":
        """Return the windows from ``first`` to before ``end``."""
        tails, shared = _cut(self.tails, first, end), _cut(self.shared, first, end)
        return Side(self.sums[first:end], self.buckets[:, first:end], tails, shared)

    def beyond(self, step: int) -> FloatArray:
        """Return how many answers are beyond a step of the tail, shape (windows, 64)."""
        return beyond_step(self.tails, step, len(self.sums))

    def count_beyond(self, step: int) -> FloatArray:
        """Return how many answers are beyond a step of the tail in all buckets together, shape (windows,)."""
        return counts_beyond_step(self.tails, step, len(self.sums))

    def without_slow(self, chosen: NDArray[np.bool_]) -> "Side":
        """Return the same, as if in the chosen windows (shape (windows,)) no answer had been slow."""
        sums, buckets = self.sums.copy(), self.buckets.copy()
        for name, column in _SLOW:
            sums[chosen, _COLUMNS.index(name)] = 0
            buckets[column, chosen] = 0
        return Side(sums, buckets)  # no check of the tail asks for such windows


class Arrivals(NamedTuple):
    """Entities that a shipper met for the first time in a rollout: columns with one row per window and generation."""

    shippers: tuple[str, ...]
    shipper: NDArray[np.int64]
    """Index into ``shippers``."""
    start: NDArray[np.int64]
    policy_generation: NDArray[np.int64]
    is_challenger: NDArray[np.int64]
    new_entities: NDArray[np.int64]
    new_in_role: NDArray[np.int64]

    def is_equal(self, other: "Arrivals") -> bool:
        """Return whether both hold the same rows in the same order."""
        return self.shippers == other.shippers and all(map(np.array_equal, self[1:], other[1:]))

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Arrivals":
        """Return the rows that a mask or a list of indices chooses."""
        return Arrivals(self.shippers, *(column[chosen] for column in self[1:]))

    @property
    def challenger_entities(self) -> int:
        """Entities that met the challenger, at least: of several shippers, which may have met the same, the most."""
        challengers = self.is_challenger > 0
        met = np.bincount(self.shipper[challengers], self.new_in_role[challengers])
        return int(met.max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """The windows of one rollout, by their start, each summed over all shippers and generations."""

    starts: NDArray[np.int64]
    champion: Side
    challenger: Side
    arrivals: Arrivals

    def is_equal(self, other: "Strata") -> bool:
        """Return whether both hold the same windows, to the last bit."""
        return self is other or (
            np.array_equal(self.starts, other.starts)
            and self.arrivals.is_equal(other.arrivals)
            and self.challenger.is_equal(other.challenger)
            and self.champion.is_equal(other.champion)
        )

    def until(self, moment: float) -> "Strata":
        """Return what had ended at a moment, in seconds since the epoch."""
        return self.begun_by(moment - WINDOW_SECONDS)

    def begun_by(self, moment: float) -> "Strata":
        """Return what had begun at a moment, with as much of the windows that had not ended as has come of them."""
        end = int(np.searchsorted(self.starts, moment, side="right"))
        arrivals = self.arrivals.where(self.arrivals.start <= moment)
        return Strata(self.starts[:end], self.champion.cut(0, end), self.challenger.cut(0, end), arrivals)

    def between(self, since: int, until: int) -> "Strata":
        """Return the windows that start in ``[since, until)``, as a part of these without a copy of their numbers."""
        first, end = (int(place) for place in np.searchsorted(self.starts, [since, until]))
        arrivals = self.arrivals.where((self.arrivals.start >= since) & (self.arrivals.start < until))
        return Strata(self.starts[first:end], self.champion.cut(first, end), self.challenger.cut(first, end), arrivals)

    def first_at(self, moment: float) -> int:
        """Return the index of the first window that ends after a moment."""
        return int(self.firsts_at(np.array([moment]))[0])

    def firsts_at(self, moments: FloatArray) -> NDArray[np.int64]:
        """Return for each moment the index of the first window that ends after it, shape (moments,)."""
        return np.searchsorted(self.starts, moments - WINDOW_SECONDS, side="right").astype(np.int64)


def stratify(windows: Iterable[Window], rollout_id: int) -> Strata:
    """Return the champion's and the challenger's windows of a rollout side by side; other windows are left out."""
    own = [window for window in windows if window.key.rollout_id == rollout_id and window.key.role is not Role.SHADOW]
    starts = np.unique(np.array([window.key.start for window in own], np.int64))
    champion, challenger = (
        _side([window for window in own if window.key.role is role], starts)
        for role in (Role.CHAMPION, Role.CHALLENGER)
    )
    return Strata(starts, champion, challenger, _arrivals(own))


def join_strata(parts: Sequence[Strata]) -> Strata:
    """Return several strata in one, windows with the same start added: older ones need not be stratified again."""
    starts = np.unique(np.concatenate([part.starts for part in parts]))
    return Strata(
        starts,
        _joined([part.champion for part in parts], [part.starts for part in parts], starts),
        _joined([part.challenger for part in parts], [part.starts for part in parts], starts),
        _joined_arrivals([part.arrivals for part in parts]),
    )


def _side(windows: Sequence[Window], starts: NDArray[np.int64]) -> Side:
    if not windows:
        return Side(*_no_calls(len(starts)))
    ordered = sorted(windows, key=lambda window: window.key.start)
    sums = np.array([_sums_of(window) for window in ordered], np.float64) * _UNITS
    buckets = np.stack([window.buckets for window in ordered]).astype(np.float64)
    own_starts = np.array([window.key.start for window in ordered], np.int64)
    sparse = tail_entries(ordered), cell_entries([window.shared_errors for window in ordered])
    return _summed(Side(sums, buckets.transpose(2, 0, 1) * _BUCKET_UNITS, *sparse), own_starts, starts)


def _joined(sides: Sequence[Side], side_starts: Sequence[NDArray[np.int64]], starts: NDArray[np.int64]) -> Side:
    own_starts = np.concatenate(side_starts)
    if not len(own_starts):
        return Side(*_no_calls(len(starts)))
    sums = np.concatenate([side.sums for side in sides])
    buckets = np.concatenate([side.buckets for side in sides], axis=1)
    befores = np.cumsum([0, *(len(side.sums) for side in sides[:-1])]).tolist()
    tails, shared = (
        np.concatenate([entries + np.array([before, 0, 0]) for entries, before in zip(of_sides, befores, strict=True)])
        for of_sides in ([side.tails for side in sides], [side.shared for side in sides])
    )
    if len(own_starts) == len(starts) and (np.diff(own_starts) > 0).all():  # one after the other: nothing to add up
        return Side(sums, buckets, tails, shared)
    order = np.argsort(own_starts, kind="stable")
    places = np.argsort(order)
    ordered = Side(sums[order], buckets[:, order], _put(tails, places), _put(shared, places))
    return _summed(ordered, own_starts[order], starts)


def _summed(side: Side, own_starts: NDArray[np.int64], starts: NDArray[np.int64]) -> Side:
    """Return one window per start, given at least one window and all of them in the order of their starts."""
    firsts = np.flatnonzero(np.diff(own_starts, prepend=own_starts[0] - 1))
    places = np.searchsorted(starts, own_starts[firsts])
    there = np.searchsorted(starts, own_starts)
    summed = Side(*_no_calls(len(starts)), _put(side.tails, there), _put(side.shared, there))
    if len(firsts) == len(own_starts):  # nothing to add up
        summed.sums[places] = side.sums
        summed.buckets[:, places] = side.buckets
        return summed
    summed.sums[places] = np.add.reduceat(side.sums, firsts, axis=0)
    summed.buckets[:, places] = np.add.reduceat(side.buckets, firsts, axis=1)
    return summed


def _cut(entries: NDArray[np.int64], first: int, end: int) -> NDArray[np.int64]:
    """Return the rows of the windows from ``first`` to before ``end``, counted from ``first``."""
    places = entries[:, 0]
    if (places[1:] >= places[:-1]).all():  # as nearly always: a part of the same numbers, without a copy
        begin, until = np.searchsorted(places, [first, end])
        found: NDArray[np.int64] = entries[begin:until]
    else:
        found = entries[(places >= first) & (places < end)]
    return found - np.array([first, 0, 0]) if first else found


def _put(entries: NDArray[np.int64], places: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return rows of windows that have other places now."""
    moved: NDArray[np.int64] = np.column_stack((places[entries[:, 0]], entries[:, 1:]))
    return moved


def _no_calls(windows: int) -> tuple[FloatArray, FloatArray]:
    return np.zeros((windows, len(_COLUMNS))), np.zeros((len(BucketColumn), windows, ANALYSIS_BUCKETS))


def _arrivals(windows: Sequence[Window]) -> Arrivals:
    shippers = tuple(sorted({window.key.shipper for window in windows}))
    rows = [
        (
            shippers.index(window.key.shipper),
            window.key.start,
            window.key.policy_generation,
            window.key.role is Role.CHALLENGER,
            window.new_entities,
            window.new_in_role,
        )
        for window in windows
    ]
    return Arrivals(shippers, *np.array(rows, np.int64).reshape(-1, 6).T)


def _joined_arrivals(parts: Sequence[Arrivals]) -> Arrivals:
    shippers = tuple(sorted({name for part in parts for name in part.shippers}))
    renamed = [
        part._replace(shipper=np.array([shippers.index(name) for name in part.shippers], np.int64)[part.shipper])
        for part in parts
    ]
    return Arrivals(
        shippers, *(np.concatenate(columns) for columns in zip(*(part[1:] for part in renamed), strict=True))
    )
