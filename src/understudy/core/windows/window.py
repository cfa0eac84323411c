"""One window: what a version did in one role in fifteen seconds at one shipper; its columns and JSON.

A window holds integers that add up, and nothing else: sums in millionths, counts, and the cells of histograms. Windows
of several shippers or of a longer time are therefore added up, in any order: see
:func:`~understudy.core.windows.strata.stratify`. A percentile is never stored: averages of percentiles were wrong by up
to 133 % (statistics page, §2).

Which rows of ``PredictionLog`` count, and where:

* ``reason`` ``forced``: nowhere, it is not the entities' own traffic.
* ``reason`` ``category``: in ``volume`` and ``cache_hits``. The category chose the version, not chance, so a comparison
  of the versions would compare categories. In a rollout also in ``slices``, as the slice of the category's route: there
  it is compared with the entities of the same category that the policy holds out.
* ``cache_hit``: in ``volume``, ``cache_hits`` and among the new entities. Comparing hits with misses would roll back
  every challenger, whose cache is cold.
* A fallback is one row, written under the champion that stood in, and ``assigned_version_id`` still names the
  challenger. It counts once, as an error of that challenger in the role ``challenger``, whether the champion then
  answered (``status`` ``fallback``) or failed as well. The champion's own window does not see it: those calls are not
  a sample of the champion's traffic but the calls that a challenger could not answer, and their latency is that of two.
  One that the champion failed as well counts besides as a shared error, which tells nothing of the two apart.
* A call whose caller gave it little time: see :mod:`understudy.core.windows.caller_deadlines`. The hurried ones are in
  ``volume``, ``hurried_calls``, ``hurried_errors`` and ``latencies``, and nowhere else.
* Everything else is a judged call of the version and role that the row names; an error if its ``status`` is
  ``timeout``, ``unavailable``, ``bad_answer`` or ``error``. Latency and score are those of judged calls that were
  answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from understudy.core.routing.policy import Role
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import MAX_SIZE, Histogram, cell_of
from understudy.core.windows.slices import SliceCounts, slices_from_rows, slices_to_rows

WINDOW_SECONDS = 15
TAIL_STEPS = 16
"""Thresholds τ · 1.2^1 to τ · 1.2^16, 18 times τ, that :mod:`understudy.core.windows.tail` tells apart; what is further
is in the last cell."""
MAX_SCORE = 1_000_000
"""Scores beyond it, on either side of zero, add as it, so that sums stay within 64 bits."""
MICRO = 1_000_000
"""Sums of logarithms and scores are in millionths, because sums of floats depend on their order."""


class WindowKey(NamedTuple):
    """Whose window it is; unique in the whole installation."""

    shipper: str
    epoch: int
    """0, or above it for rows that came after their window was closed: a window of its own, to be added."""
    model_version_id: int
    role: Role
    rollout_id: int
    """0 outside of any rollout."""
    policy_generation: int
    start: int
    """Seconds since the epoch, a multiple of :data:`WINDOW_SECONDS`."""


class BucketColumn(IntEnum):
    """What is known of each analysis bucket: the columns of :attr:`Window.buckets`."""

    CALLS = 0
    ERRORS = 1
    SLOW_LOW = 2
    SLOW_HIGH = 3
    LOG_LATENCY = 4
    SCORE_CALLS = 5
    SCORE = 6


def no_buckets() -> NDArray[np.int64]:
    """Return the buckets of a window without calls."""
    return np.zeros((ANALYSIS_BUCKETS, len(BucketColumn)), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Sums over the calls of one :class:`WindowKey`; two windows are equal if their JSON is.

    ``log_latency`` and ``score`` with their ``_squares`` are in millionths: of the logarithm of microseconds, and of
    the score, which adds as at most :data:`MAX_SCORE`; its cell is exact.
    """

    key: WindowKey
    volume: int = 0
    """All calls, cache hits included."""
    cache_hits: int = 0
    calls: int = 0
    """Judged calls: answered or failed by the version itself."""
    errors: int = 0
    hurried_calls: int = 0
    """Calls that no version is judged by, because their callers gave them too little time."""
    hurried_errors: int = 0
    """Those that were not answered, or by another version."""
    expired_calls: int = 0
    """Judged calls that ended at their callers' deadlines: among the slow answers, not among the errors."""
    entities: int = 0
    """Different entities among the judged calls."""
    error_entities: int = 0
    """Those with at least one error, so that a storm of retries is one event."""
    shared_error_entities: int = 0
    """Those of them that the champion, asked in the challenger's place, failed each time as well."""
    new_entities: int = 0
    """Entities that this shipper had not yet met in the rollout, in either role."""
    new_in_role: int = 0
    """Entities that it had not yet met in the rollout in this role: a growing weight moves entities over."""
    log_latency: int = 0
    log_latency_squares: int = 0
    slow_low: int = 0
    """Answered calls slower than the rollout's threshold τ."""
    slow_high: int = 0
    """Answered calls slower than 1.2 τ."""
    score_calls: int = 0
    score: int = 0
    score_squares: int = 0
    positives: int = 0
    """Scores of at least 0.5."""
    latencies: Histogram = field(default_factory=Histogram)
    """Of answered calls, in microseconds: all the time that they took, those of hurried ones included."""
    scores: Histogram = field(default_factory=Histogram)
    tails: Histogram = field(default_factory=Histogram)
    """Of answered calls slower than 1.2 τ, in cells of :mod:`understudy.core.windows.tail`, by analysis bucket."""
    deadlines: Histogram = field(default_factory=Histogram)
    """Of the calls in :attr:`metric_calls`, those that their callers gave less time than the champion has by itself, in
    microseconds."""
    slices: SliceCounts = field(default_factory=dict)
    """What is counted of the judged calls of each category, and of each value of a feature that versions mark."""
    shared_errors: Histogram = field(default_factory=Histogram)
    """Errors of calls that the champion failed as well, by analysis bucket."""
    buckets: NDArray[np.int64] = field(default_factory=no_buckets)
    """Shape (64, 7): a row per analysis bucket, the columns of :class:`BucketColumn`."""

    @property
    def answered(self) -> int:
        """Judged calls that were no error; those that expired are slow answers."""
        return self.calls - self.errors

    @property
    def metric_calls(self) -> int:
        """Calls that an error rate is of, whatever their callers gave them."""
        return self.calls + self.hurried_calls

    @property
    def metric_errors(self) -> int:
        """Those of them that were not answered by this version."""
        return self.errors + self.hurried_errors + self.expired_calls


COUNTS = (
    "volume",
    "cache_hits",
    "calls",
    "errors",
    "hurried_calls",
    "hurried_errors",
    "expired_calls",
    "entities",
    "error_entities",
    "shared_error_entities",
    "new_entities",
    "new_in_role",
    "log_latency",
    "log_latency_squares",
    "slow_low",
    "slow_high",
    "score_calls",
    "score",
    "score_squares",
    "positives",
)
"""The fields of a window that are one integer."""


def window_to_json(window: Window) -> str:
    """Return everything but the key as JSON text; what is 0 is left out, and equal windows have equal texts.

    ``latencies``, ``scores``, ``tails``, ``deadlines`` and ``shared_errors`` are lists ``[cell, count, cell, count,
    …]``, ``buckets`` is one of ``[bucket, calls, errors, …]`` per bucket with calls, ``slices`` one of ``[feature,
    value, bucket, calls, errors, slow, log_latency, bucket, …]``. Squares are strings: they may need more than 64 bits.
    """
    document: dict[str, Any] = {name: value for name in COUNTS if (value := getattr(window, name))}
    document |= {name: str(document[name]) for name in _MAY_BE_LONG if name in document}
    document |= {name: _pairs(histogram) for name in _CELLS if (histogram := getattr(window, name)).counts}
    if rows := _bucket_rows(window.buckets):
        document["buckets"] = rows
    if sliced := slices_to_rows(window.slices):
        document["slices"] = sliced
    return orjson.dumps(document).decode()


def window_from_json(key: WindowKey, text: str | bytes) -> Window:
    """Return the window that :func:`window_to_json` wrote.

    Raises:
        ValueError: It is not one, or no calls can have these sums.
    """
    try:
        document: Mapping[str, Any] = orjson.loads(text)
        counts = {name: _count_of(name, document[name]) for name in COUNTS if name in document}
        _require_possible(counts)
        histograms = {name: _histogram(document[name], *cells) for name, cells in _CELLS.items() if name in document}
        slices = slices_from_rows(document.get("slices", ()), _MAX_LOG_LATENCY * MICRO)
        fields: Mapping[str, Any] = counts | histograms | {"slices": slices}
        return Window(key=key, **fields, buckets=_buckets(document.get("buckets", ())))
    except (AttributeError, TypeError, LookupError, ValueError, OverflowError) as problem:
        raise ValueError(f"not a window: {problem}") from problem


NOT_OF_SLICES = ("buckets", "latencies", "scores", "tails", "deadlines", "shared_errors")
"""The fields that have nothing to do with slices."""


def without_slices(window: Window) -> Window:
    """Return what an analysis of all calls reads."""
    return replace(window, slices={})


def slices_alone(window: Window) -> Window:
    """Return what a comparison of slices reads: the sums and the slices."""
    return Window(window.key, slices=window.slices, **{name: getattr(window, name) for name in COUNTS})


_MAX_COUNT = 2**63 - 1
_MAX_LOG_LATENCY = 50
"""The logarithm of the longest latency that 64 bits hold in microseconds is 43.7."""
_MAX_SUMS = (
    ("log_latency", "calls", _MAX_LOG_LATENCY * MICRO),
    ("log_latency_squares", "calls", _MAX_LOG_LATENCY**2 * MICRO),
    ("score", "score_calls", MAX_SCORE * MICRO),
    ("score_squares", "score_calls", MAX_SCORE**2 * MICRO),
)
"""A sum, the calls that it is of, and the most that each of them adds."""
_MAX_CELL = cell_of(MAX_SIZE)
_MAX_LATENCY_CELL = cell_of(2.0**53)
_CELLS = {
    "latencies": (0, _MAX_LATENCY_CELL),
    "scores": (-_MAX_CELL, _MAX_CELL),
    "tails": (0, TAIL_STEPS * ANALYSIS_BUCKETS - 1),
    "deadlines": (0, _MAX_LATENCY_CELL),
    "shared_errors": (0, ANALYSIS_BUCKETS - 1),
}
"""The first and the last cell of each histogram: what is computed from others would be no number."""
_MAX_LONG = 2**127
_MAY_BE_NEGATIVE = frozenset({"log_latency", "score"})


def _count_of(name: str, value: Any) -> int:
    """Return a sum within its bounds: rows are read from a table that every proxy writes."""
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    if type(value) is not int and not (name in _MAY_BE_LONG and type(value) is str):
        raise ValueError(f"{name} is no integer")
    count = int(value)
    most = _MAX_LONG if name in _MAY_BE_LONG else _MAX_COUNT
    if not (-most if name in _MAY_BE_NEGATIVE else 0) <= count <= most:
        raise ValueError(f"{name} is out of range")
    return count


def _require_possible(counts: Mapping[str, int]) -> None:
    """Refuse sums beyond what so many calls add up to: the exponential of their mean is no float."""
    for name, calls, most in _MAX_SUMS:
        if abs(counts.get(name, 0)) > most * counts.get(calls, 0):
            raise ValueError(f"{name} is out of range for {counts.get(calls, 0)} {calls}")


_MAY_BE_LONG = ("log_latency_squares", "score_squares")


def _pairs(histogram: Histogram) -> list[int]:
    return list(chain.from_iterable(sorted(histogram.counts.items())))


def _histogram(pairs: Sequence[int], first_cell: int, last_cell: int) -> Histogram:
    cells, counts = pairs[::2], pairs[1::2]
    if pairs:
        if set(map(type, pairs)) != {int} or min(cells) < first_cell or max(cells) > last_cell:
            raise ValueError("a histogram has something else than cells")
        if min(counts, default=0) < 0 or max(counts, default=0) > _MAX_COUNT:
            raise ValueError("a histogram's counts are out of range")
    return Histogram(dict(zip(cells, counts, strict=True)))


def _bucket_rows(buckets: NDArray[np.int64]) -> list[list[int]]:
    filled = np.flatnonzero(buckets.any(axis=1))
    rows: list[list[int]] = np.column_stack((filled, buckets[filled])).tolist()
    return rows


_NOT_NEGATIVE = [
    0,
    *(1 + column for column in BucketColumn if column not in (BucketColumn.LOG_LATENCY, BucketColumn.SCORE)),
]
_BUCKET_SUMS = [1 + BucketColumn.LOG_LATENCY, 1 + BucketColumn.SCORE]
_BUCKET_CALLS = [1 + BucketColumn.CALLS, 1 + BucketColumn.SCORE_CALLS]
_BUCKET_MOST = np.array([_MAX_LOG_LATENCY * MICRO, MAX_SCORE * MICRO], np.float64)
"""Columns of a stored row, whose first is the bucket's number."""


def _buckets(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    buckets = no_buckets()
    if rows:
        table = np.array(rows, np.int64).reshape(-1, 1 + len(BucketColumn))
        if table[:, _NOT_NEGATIVE].min() < 0:
            raise ValueError("a bucket's counts are negative")
        if (np.abs(table[:, _BUCKET_SUMS].astype(np.float64)) > table[:, _BUCKET_CALLS] * _BUCKET_MOST).any():
            raise ValueError("a bucket's sums are out of range for its calls")
        buckets[table[:, 0]] = table[:, 1:]
    return buckets
