"""One window while a batch of calls is added to it."""

from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from math import log

import numpy as np
from numpy.typing import NDArray

from understudy.core.routing.policy import Role
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.caller_deadlines import GivenTime, Share, least_deadline_us
from understudy.core.windows.histogram import Histogram, cells_of, cells_of_logs
from understudy.core.windows.slices import SLICE_BUCKETS, CallSums, SlicedCalls, SliceTally
from understudy.core.windows.tail import STEP_RATIO, tail_cells
from understudy.core.windows.window import COUNTS, MAX_SCORE, MICRO, BucketColumn, Window

MAX_WINDOW_ENTITIES = 8_192
"""Entities of one window that are told apart: 546 a second. Past that, each call of another one counts as an entity."""
POSITIVE_SCORE = 0.5
"""Seed 000: the positive rate is the share of predictions from one half on."""
_KNOWN_US = 32_768
"""Latencies whose logarithms are kept, 256 KiB."""
_COLUMN_COUNT = len(BucketColumn)
_ERRORS = int(BucketColumn.ERRORS)
_SLOW_LOW = int(BucketColumn.SLOW_LOW)
_SLOW_HIGH = int(BucketColumn.SLOW_HIGH)
_LOG_LATENCY = int(BucketColumn.LOG_LATENCY)
_SCORE_CALLS = int(BucketColumn.SCORE_CALLS)
_SCORE = int(BucketColumn.SCORE)


class WindowTally:
    """The sums of one window; what it starts from is never changed.

    What counts a call as failed, as a hit or as new is decided before.

    Args:
        window: What is committed.
        entities: Hashes of the entities that are in it.
        failing: Those with an error, and those with one that the champion did not have as well.
        slow_us: The threshold τ in microseconds; without one no call is slow.
        share: Of its callers' deadlines.
    """

    def __init__(
        self,
        window: Window,
        entities: AbstractSet[int],
        failing: tuple[AbstractSet[int], AbstractSet[int]],
        slow_us: int | None,
        share: Share,
    ) -> None:
        self._base = window
        self._known = entities
        self._known_with_error, self._known_with_own_error = failing
        self.fresh: set[int] = set()
        """Entities that were not in the window."""
        self.fresh_with_error: set[int] = set()
        self.fresh_with_own_error: set[int] = set()
        self._own_error_entities = window.error_entities - window.shared_error_entities
        self.is_in_rollout = window.key.rollout_id != 0
        self.budget_ratio = share.ratio
        is_compared = self.is_in_rollout and not share.is_alone
        self.least_deadline_us = least_deadline_us(slow_us, share.ratio, is_compared=is_compared)
        self._slow_low_us = float("inf") if slow_us is None else slow_us
        self._slow_high_us = STEP_RATIO * self._slow_low_us
        self._latencies = dict(window.latencies.counts)
        self._scores = dict(window.scores.counts)
        self._tails = dict(window.tails.counts)
        self._deadlines = dict(window.deadlines.counts)
        self._slices = SliceTally(window.slices)
        self._slow_slice_us = self._slow_low_us if window.key.role is Role.CHAMPION else self._slow_high_us
        self._shared_errors = dict(window.shared_errors.counts)
        self._buckets = array("q", window.buckets.tobytes())
        for name in COUNTS:
            setattr(self, name, getattr(window, name))

    volume: int
    cache_hits: int
    calls: int
    errors: int
    hurried_calls: int
    hurried_errors: int
    expired_calls: int
    entities: int
    error_entities: int
    shared_error_entities: int
    new_entities: int
    new_in_role: int
    log_latency: int
    log_latency_squares: int
    slow_low: int
    slow_high: int
    score_calls: int
    score: int
    score_squares: int
    positives: int

    @property
    def fresh_entities(self) -> int:
        """How many entities are told apart that were not, each in as many sets as it is in."""
        return len(self.fresh) + len(self.fresh_with_error) + len(self.fresh_with_own_error)

    def window(self) -> Window:
        """Return the window with everything added so far."""
        return Window(
            key=self._base.key,
            **{name: getattr(self, name) for name in COUNTS},
            latencies=Histogram(self._latencies),
            scores=Histogram(self._scores),
            tails=Histogram(self._tails),
            deadlines=Histogram(self._deadlines),
            slices=self._slices.counts(),
            shared_errors=Histogram(self._shared_errors),
            buckets=np.frombuffer(self._buckets, np.int64).reshape(ANALYSIS_BUCKETS, _COLUMN_COUNT),
        )

    def add_calls(
        self,
        entities: NDArray[np.uint64],
        is_failed: NDArray[np.bool_],
        latency_us: NDArray[np.int64],
        scores: NDArray[np.float64],
        given: GivenTime | None = None,
        *,
        sliced: SlicedCalls | None = None,
    ) -> None:
        """Add judged calls, arrays of shape ``(n,)`` in their order: failures if ``is_failed``, the others answers.

        Args:
            entities: Their analysis hashes.
            is_failed: Latency and score of these count nowhere.
            latency_us: From 0 on.
            scores: Those that are not finite are none.
            given: What their callers gave them. One that expired is no failure, but took the longest time compared.
            sliced: Their slices.
        """
        places = (entities % ANALYSIS_BUCKETS).astype(np.intp) * _COLUMN_COUNT
        buckets = np.frombuffer(self._buckets, np.int64)
        np.add.at(buckets, places, 1)
        np.add.at(buckets, places[is_failed] + _ERRORS, 1)
        failed = entities[is_failed].tolist()
        self.calls += entities.size
        self.errors += len(failed)
        self.entities += _count_new(entities.tolist(), self._known, self.fresh)
        self.error_entities += _count_new(failed, self._known_with_error, self.fresh_with_error)
        is_answered = ~is_failed
        if given is None:
            logarithms = self._add_latencies(buckets, places[is_answered], latency_us[is_answered])
            _count_cells(self._latencies, cells_of_logs(logarithms))
        else:
            compared_us = np.where(given.is_expired, given.compared_us, np.minimum(latency_us, given.compared_us))
            self._add_latencies(buckets, places[is_answered], compared_us[is_answered])
            is_answered &= ~given.is_expired
            _count_cells(self._latencies, cells_of_logs(_logarithms(latency_us[is_answered])))
            self.expired_calls += int(np.count_nonzero(given.is_expired))
            latency_us = compared_us
        if sliced is not None:
            self._add_slices(sliced, entities, is_failed, latency_us)
        is_scored = is_answered & np.isfinite(scores)
        self._add_scores(buckets, places[is_scored], scores[is_scored])

    def add_routed(
        self,
        entities: NDArray[np.uint64],
        is_failed: NDArray[np.bool_],
        latency_us: NDArray[np.int64],
        given: GivenTime | None,
        sliced: SlicedCalls,
    ) -> None:
        """Add calls to their slices and to nothing else; arguments as of :meth:`add_calls`."""
        if given is not None:
            latency_us = np.where(given.is_expired, given.compared_us, np.minimum(latency_us, given.compared_us))
        self._add_slices(sliced, entities, is_failed, latency_us)

    def _add_slices(
        self,
        sliced: SlicedCalls,
        entities: NDArray[np.uint64],
        is_failed: NDArray[np.bool_],
        latency_us: NDArray[np.int64],
    ) -> None:
        micros = (_logarithms(latency_us) * MICRO).astype(np.int64)
        is_slow = ~is_failed & (latency_us > self._slow_slice_us)
        bucket = (entities % SLICE_BUCKETS).astype(np.intp)
        self._slices.add(sliced, CallSums(bucket, is_failed, is_slow, np.where(is_failed, 0, micros)))

    def add_shared(self, failed: NDArray[np.uint64], is_shared: NDArray[np.bool_]) -> None:
        """Add which of the failed calls that were added failed on the champion as well, shape ``(n,)`` each.

        Args:
            failed: Their analysis hashes.
            is_shared: Whether the champion was asked in the challenger's place and failed too.
        """
        own = failed[~is_shared].tolist()
        self._own_error_entities += _count_new(own, self._known_with_own_error, self.fresh_with_own_error)
        # Past the bound an entity may be told apart in one set alone.
        self.shared_error_entities = max(0, self.error_entities - self._own_error_entities)
        _count_cells(self._shared_errors, (failed[is_shared] % ANALYSIS_BUCKETS).astype(np.int64))

    def add_deadlines(self, deadline_us: NDArray[np.int64]) -> None:
        """Add what callers gave their calls, 0 for nothing."""
        given = deadline_us[deadline_us > 0]
        if given.size:
            _count_cells(self._deadlines, cells_of_logs(_logarithms(given)))

    def add_hurried(self, is_failed: NDArray[np.bool_], latency_us: NDArray[np.int64]) -> None:
        """Add calls that no version is judged by: they are counted, and how long it took to answer them."""
        self.hurried_calls += is_failed.size
        self.hurried_errors += int(np.count_nonzero(is_failed))
        _count_cells(self._latencies, cells_of_logs(_logarithms(latency_us[~is_failed])))

    def _add_latencies(
        self, buckets: NDArray[np.int64], places: NDArray[np.intp], latency_us: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Add how long answers took; return the logarithms."""
        logarithms = _logarithms(latency_us)
        micros = (logarithms * MICRO).astype(np.int64)
        self.log_latency += int(micros.sum())
        self.log_latency_squares += int((logarithms * logarithms * MICRO).astype(np.int64).sum())
        np.add.at(buckets, places + _LOG_LATENCY, micros)
        if self._slow_low_us == float("inf"):
            return logarithms
        is_high = latency_us > self._slow_high_us
        slow_low, slow_high = places[latency_us > self._slow_low_us], places[is_high]
        self.slow_low += slow_low.size
        self.slow_high += slow_high.size
        np.add.at(buckets, slow_low + _SLOW_LOW, 1)
        np.add.at(buckets, slow_high + _SLOW_HIGH, 1)
        _count_cells(self._tails, tail_cells(slow_high // _COLUMN_COUNT, latency_us[is_high], self._slow_low_us))
        return logarithms

    def _add_scores(self, buckets: NDArray[np.int64], places: NDArray[np.intp], scores: NDArray[np.float64]) -> None:
        _count_cells(self._scores, cells_of(scores))
        self.positives += int(np.count_nonzero(scores >= POSITIVE_SCORE))
        clipped = np.clip(scores, -MAX_SCORE, MAX_SCORE)
        micros = np.rint(clipped * MICRO).astype(np.int64)
        self.score += int(micros.sum())
        # One square fits into 64 bits, ten do not.
        self.score_squares += sum(np.rint(clipped * clipped * MICRO).astype(np.int64).tolist())
        self.score_calls += scores.size
        np.add.at(buckets, places + _SCORE_CALLS, 1)
        np.add.at(buckets, places + _SCORE, micros)


def _logarithms(latency_us: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return natural logarithms, to the last bit the library's: numpy's may differ there, and then in a sum."""
    known = _known_logarithms()
    found = known[np.clip(latency_us, 1, known.size - 1)]
    is_long = latency_us >= known.size
    if is_long.any():
        found[is_long] = list(map(log, latency_us[is_long].tolist()))
    return found


@cache
def _known_logarithms() -> NDArray[np.float64]:
    """Return the logarithms of most latencies, by the latency in microseconds; what stands at 0 is none."""
    return np.array([0.0, *map(log, range(1, _KNOWN_US))])


def _count_new(entities: Sequence[int], known: AbstractSet[int], fresh: set[int]) -> int:
    """Remember entities as far as there is room; return how many calls were of one that was not in the window."""
    unknown = set(entities).difference(known) - fresh
    room = MAX_WINDOW_ENTITIES - len(known) - len(fresh)
    if len(unknown) <= room:
        fresh |= unknown
        return len(unknown)
    if room <= 0:
        return sum(map(unknown.__contains__, entities))
    met = 0
    for entity in entities:
        if entity in known or entity in fresh:
            continue
        met += 1
        if room > 0:
            fresh.add(entity)
            room -= 1
    return met


def _count_cells(counts: dict[int, int], cells: NDArray[np.int64]) -> None:
    for cell, count in zip(*(column.tolist() for column in np.unique(cells, return_counts=True)), strict=True):
        counts[cell] = counts.get(cell, 0) + count
