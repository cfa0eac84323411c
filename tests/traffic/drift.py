"""Traffic for drift, in windows of an hour, and baselines of whole arrays; the product counts a file row by row."""

from collections import Counter
from collections.abc import Iterable
from math import pi, sin
from typing import NamedTuple

import numpy as np

from understudy.core.drift.baseline import (
    MAX_CATEGORIES,
    QUANTILES,
    CategoricalBaseline,
    FloatArray,
    NumericBaseline,
)
from understudy.core.drift.subject_window import IntArray, SubjectWindow, numeric_window
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram

HOUR_SECONDS = 3_600.0
WEEK_HOURS = 168
MEAN, DEVIATION = 0.32, 0.18
"""Of the scores; shifts are in standard deviations."""


class Hour(NamedTuple):
    """The rows of one window."""

    values: FloatArray
    buckets: IntArray


def fresh_hour(
    generator: np.random.Generator, shift: float = 0.0, *, entities: int = 200, spread: float = 1.0, alike: float = 0.9
) -> Hour:
    """Return an hour of entities never seen before, each with about ten requests."""
    requests = generator.poisson(10, entities)
    rows = int(requests.sum())
    own = np.repeat(generator.normal(size=entities), requests) * alike**0.5
    standard = own + generator.normal(size=rows) * (1 - alike) ** 0.5
    buckets = np.repeat(generator.integers(0, ANALYSIS_BUCKETS, entities), requests)
    return Hour(MEAN + DEVIATION * (shift + spread * standard), buckets)


def wave(hour: int) -> float:
    """Return what the hour of the week does: a day's wave of half a standard deviation, and higher weekends."""
    is_weekend = hour % WEEK_HOURS >= 120
    return 0.5 * sin(2 * pi * hour / 24) + (0.3 if is_weekend else 0.0)


def weekly_hour(generator: np.random.Generator, hour: int, shift: float = 0.0) -> Hour:
    """Return an hour of traffic that depends on the hour of the week, in values and in volume."""
    return fresh_hour(generator, shift + wave(hour), entities=int(200 * (1 + 0.5 * sin(2 * pi * hour / 24))))


def windows_of(hours: Iterable[Hour], first: int = 0) -> list[SubjectWindow]:
    """Return the windows of consecutive hours."""
    return [numeric_window((first + place) * HOUR_SECONDS, *hour) for place, hour in enumerate(hours)]


def numeric_baseline(values: FloatArray, *, threshold: float | None = None) -> NumericBaseline:
    """Return the baseline of numbers.

    Args:
        values: Shape ``(n,)``; NaN is null.
        threshold: The score from which on a value is a positive, if that says something.

    Raises:
        ValueError: If a value is infinite, or none is there.
    """
    present = values[~np.isnan(values)]
    if present.size == 0:
        raise ValueError("values: expected at least one that is not null")
    if not np.isfinite(present).all():
        raise ValueError("values: expected finite numbers (NaN for null), got an infinite one")
    return NumericBaseline(
        mean=float(present.mean()),
        standard_deviation=float(present.std()),
        rows=int(present.size),
        quantiles=dict(zip(QUANTILES, np.quantile(present, QUANTILES).tolist(), strict=True)),
        histogram=Histogram.of(present.tolist()),
        null_ratio=1 - present.size / values.size,
        positive_ratio=None if threshold is None else float((present >= threshold).mean()),
    )


def categorical_baseline(values: Iterable[str | None]) -> CategoricalBaseline:
    """Return the baseline of category names; ``None`` is null.

    Raises:
        ValueError: If there is no value.
    """
    counts = Counter(values)
    nulls = counts.pop(None, 0)
    rows = counts.total()
    if rows == 0:
        raise ValueError("values: expected at least one that is not null")
    shares = {name: count / rows for name, count in counts.most_common(MAX_CATEGORIES) if name is not None}
    return CategoricalBaseline(shares=shares, rows=rows, null_ratio=nulls / (rows + nulls))


def baseline_of_hours(hours: Iterable[Hour]) -> NumericBaseline:
    """Return the baseline that logged traffic gives."""
    return numeric_baseline(np.concatenate([hour.values for hour in hours]))


def usual_baseline(seed: int = 7) -> NumericBaseline:
    """Return the baseline of :func:`fresh_hour` without a shift, from 40,000 independent values."""
    return numeric_baseline(MEAN + DEVIATION * np.random.default_rng(seed).normal(size=40_000), threshold=0.5)
