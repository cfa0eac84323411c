"""Metrics of one version in one minute, computed from its windows, as rows of ``PredictionMetric``.

Source:
    Seed 000 names "mean, p50, p95, positive rate" of predictions; it asks for latency p99 and error rate without names
    of their own, and those are ours.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from understudy.core.windows.accumulator import POSITIVE_SCORE
from understudy.core.windows.histogram import merged
from understudy.core.windows.window import MICRO, Window

QuantileOf = Callable[[float], float | None]
"""The value that a share (0 to 1) of all values does not exceed; ``None`` without values."""

_MICROSECONDS_PER_MS = 1_000


class VersionCounts(NamedTuple):
    """What a version did: sums, and where its quantiles come from."""

    volume: int
    """Calls that it was asked for, cache hits included."""
    calls: int
    """Those that it answered or failed itself, which is what the error rate is of."""
    errors: int
    latency_us: QuantileOf
    """Of its own answers, in microseconds."""
    score_calls: int
    """Answers with a score."""
    score: int
    """Sum of the scores, in millionths."""
    positives: int | None
    """Scores from the version's threshold on; ``None`` where its schema names none."""
    score_quantile: QuantileOf


def version_counts(windows: Iterable[Window], threshold: float | None = None) -> VersionCounts:
    """Return what a version did in these windows, for its metrics: of all shippers, in all the roles that it had.

    Args:
        windows: Of one version.
        threshold: Of its ``output_schema``. Windows count positives for one value of it; for others they have the
            histogram, whose cells are 2 % wide.
    """
    kept = list(windows)
    scores = merged(window.scores for window in kept)
    positives = None if threshold is None else scores.at_least(threshold)
    if threshold == POSITIVE_SCORE:
        positives = sum(window.positives for window in kept)
    return VersionCounts(
        volume=sum(window.volume for window in kept),
        calls=sum(window.metric_calls for window in kept),
        errors=sum(window.metric_errors for window in kept),
        latency_us=merged(window.latencies for window in kept).quantile,
        score_calls=sum(window.score_calls for window in kept),
        score=sum(window.score for window in kept),
        positives=positives,
        score_quantile=scores.quantile,
    )


def metrics_of(counts: VersionCounts) -> dict[str, float]:
    """Return the value of each metric by its name. Rates are from 0 to 1; the last four are of predictions.

    A metric of nothing is left out: a version without traffic has a volume of 0 and no error rate, one without scores
    has no mean, one whose schema names no threshold has no positive rate.
    """
    found = {
        "volume": float(counts.volume),
        "error_rate": _per(counts.errors, counts.calls),
        "latency_p50_ms": _milliseconds(counts.latency_us(0.50)),
        "latency_p95_ms": _milliseconds(counts.latency_us(0.95)),
        "latency_p99_ms": _milliseconds(counts.latency_us(0.99)),
        "mean": _per(counts.score / MICRO, counts.score_calls),
        "p50": counts.score_quantile(0.50),
        "p95": counts.score_quantile(0.95),
        "positive_rate": None if counts.positives is None else _per(counts.positives, counts.score_calls),
    }
    return {name: value for name, value in found.items() if value is not None}


def _per(total: float, rows: int) -> float | None:
    return total / rows if rows else None


def _milliseconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / _MICROSECONDS_PER_MS
