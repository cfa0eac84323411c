"""Failing slices: categories and values of features for which a challenger does worse, while it is good for the rest.

A version that answers three calls in a hundred five times slower moves neither the typical latency nor the p95 of all
calls. Here each slice is judged by itself: against the champion's calls of the same slice and the same two minutes, and
beyond what the challenger does worse for all others.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np

from understudy.core.durations import clock_words
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.sequential_evidence import (
    RATIOS,
    FloatArray,
    half_normal_log_evidence,
    log_mean_exp,
)
from understudy.core.windows.slices import SLICE_BUCKETS
from understudy.core.windows.window import WINDOW_SECONDS

FALSE_DISCOVERY_RATE = 0.05
"""Of the slices that are named, at all analyses together."""
UNIT_SECONDS = 120
"""Stretches that slices are compared in: a window of fifteen seconds has too few calls of one."""
MIN_UNITS = 3
"""Stretches in which a slice has to do worse: an incident of two minutes touches two of them."""
MAX_WORST = 10
_CLUSTER_ALPHA = 0.001
"""The second key is sharpest where a name of a few dozen slices needs it to be."""
_MAX_T = 30.0
"""Groups of entities that agree to the last call would have no scatter at all."""
_WINDOWS = UNIT_SECONDS // WINDOW_SECONDS


class SliceCheck(StrEnum):
    """What is compared of a slice."""

    ERRORS = "errors"
    """The share of calls that fail."""
    SLOW = "slow"
    """The share of answers beyond the champion's 95th percentile of all calls, the challenger's beyond 1.2 times it."""
    LATENCY = "latency"
    """The mean of the logarithm of the latency, beyond 30 %."""


@dataclass(frozen=True, slots=True)
class SliceCount:
    """What the evidence of one slice rests on: of one check, from one moment on, where it says the most."""

    feature: str
    value: str
    check: SliceCheck
    since: float
    """In seconds since the epoch."""
    share: float
    """Of the evidence that all checks and all moments have together."""
    champion: tuple[float, float]
    """Calls and those that fail; for latencies answers and the sum of their logarithms."""
    challenger: tuple[float, float]
    units: int
    failing_units: int
    """Stretches in which the challenger did worse in it."""
    scores: tuple[float, ...]
    """How much worse, by groups of entities."""
    gains: tuple[float, ...] = ()
    """The logarithm of what each rate ratio explains better than chance; latencies have none."""

    @property
    def slice(self) -> Slice:
        """The slice."""
        return Slice(self.feature, self.value)


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """The slices that a challenger does worst in, of all in which it had calls."""

    seen: int
    worst: tuple[SliceCount, ...] = ()

    def without(self, told: Collection[str]) -> "SliceCounts":
        """Return the counts without slices that an operator knows of, by their texts."""
        return replace(self, worst=tuple(one for one in self.worst if str(one.slice) not in told))


class FailingSlice(NamedTuple):
    """A slice for which the challenger does worse."""

    counted: SliceCount
    log_evidence: float


def failing_slices(counts: SliceCounts) -> tuple[FailingSlice, ...]:
    """Return the slices for which the challenger does worse, the surest first.

    Source:
        e-BH: Wang and Ramdas (2022), "False discovery rate control with e-values". The evidence of a slice is the less
        of two: of its bad calls (Lindon and Malek 2022), and of how its groups of entities agree.
    """
    ranked = sorted((FailingSlice(one, _log_evidence_of(one)) for one in counts.worst), key=lambda one: -one[1])
    named = 0
    for place, one in enumerate(ranked, start=1):
        if one.log_evidence >= log(max(1, counts.seen) / (place * FALSE_DISCOVERY_RATE)):
            named = place
    return tuple(ranked[:named])


def log_evidence(gains: FloatArray | None, scores: FloatArray, units: FloatArray) -> FloatArray:
    """Return the logarithm of the evidence that slices do worse, shape ``(…,)``.

    Args:
        gains: Shape ``(…, 24)``; ``None`` for latencies, which have the second key alone.
        scores: Shape ``(…, 16)``.
        units: Stretches with calls of both, shape ``(…,)``.
    """
    total = scores.sum(axis=-1)
    error = np.maximum(np.sqrt(SLICE_BUCKETS * np.var(scores, axis=-1, ddof=1)), np.abs(total) / _MAX_T)
    t = np.divide(total, error, out=np.zeros_like(error), where=error > 0)
    z = np.maximum(t_to_z(t, SLICE_BUCKETS - 1), 0.0)
    across = half_normal_log_evidence(z, np.maximum(_WINDOWS * units, 1.0), _CLUSTER_ALPHA)
    if gains is None:
        return across
    found: FloatArray = np.minimum(log_mean_exp(np.moveaxis(gains, -1, 0)), across)
    return found


def slice_counts_to_json(counts: SliceCounts) -> dict[str, Any]:
    """Return what is stored with a verdict."""
    return asdict(counts)


def slice_counts_from_json(document: Mapping[str, Any]) -> SliceCounts:
    """Return the counts that :func:`slice_counts_to_json` wrote.

    Raises:
        LookupError, TypeError, ValueError: It is not what was written.
    """
    return SliceCounts(document["seen"], tuple(_count_from_json(one) for one in document["worst"]))


def slices_words(found: Sequence[FailingSlice]) -> str:
    """Say for which slices the challenger does worse, and by how much for the surest one."""
    first = found[0].counted
    others = "" if len(found) == 1 else f"; {len(found) - 1} more: {', '.join(str(o.counted.slice) for o in found[1:])}"
    return f"{slice_words(first)}{others}"


def slice_words(one: SliceCount) -> str:
    """Return a slice's figures: ``category=gold: errors 98.1 % (53 of 54 calls) vs 0.5 % (13 of 2,700) since …``."""
    since = f" since {clock_words(one.since)}"
    if one.check is SliceCheck.LATENCY:
        slow, usual = (exp(total / answers) / 1_000 for answers, total in (one.challenger, one.champion))
        sides = f"typical latency {slow:.3g} ms ({one.challenger[0]:,.0f} answers) vs {usual:.3g} ms"
        return f"{one.slice}: {sides} = {slow / usual:.3g}x{since}"
    what = "errors" if one.check is SliceCheck.ERRORS else "slow answers"
    return f"{one.slice}: {what} {_share_words(one.challenger)} vs {_share_words(one.champion)}{since}"


def _share_words(side: tuple[float, float]) -> str:
    calls, bad = side
    return f"{100 * bad / calls:.3g} % ({bad:,.0f} of {calls:,.0f} calls)"


def _log_evidence_of(one: SliceCount) -> float:
    if one.failing_units < MIN_UNITS:
        return -inf
    gains = None if one.check is SliceCheck.LATENCY else np.array(one.gains, np.float64)
    evidence = log_evidence(gains, np.array(one.scores, np.float64), np.array(float(one.units)))
    return float(evidence) + log(one.share)


def _count_from_json(document: Mapping[str, Any]) -> SliceCount:
    sides = {name: tuple(document[name]) for name in ("champion", "challenger", "scores", "gains")}
    one = SliceCount(**{**document, **sides, "check": SliceCheck(document["check"])})
    gains = 0 if one.check is SliceCheck.LATENCY else len(RATIOS)
    if (
        len(one.scores) != SLICE_BUCKETS
        or len(one.gains) != gains
        or not all(side[0] > 0 for side in (one.champion, one.challenger))
    ):
        raise ValueError("a slice's counts have another form")
    return one
