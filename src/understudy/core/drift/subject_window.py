"""What one prediction or input did in one stretch of time, as numbers that can be added up."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core.drift.baseline import FloatArray
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import MICRO

IntArray = NDArray[np.int64]

PREDICTION = "prediction"
"""The subject that every version has; the others are named like its features."""
CLASSES = "class"
"""The classes that a version answers with, of one whose output has labels, several values or a string."""
OF_ANSWERS = (PREDICTION, CLASSES)
_INPUT = "input:"
_SKEW = "skew:"
MAX_VALUE = 1e100
"""What is further from zero counts as this: squares of what a caller may send must stay finite."""


class SubjectWindow(NamedTuple):
    """One subject in one window; windows may be of any length, all of one report of the same.

    A numeric subject has sums, squares and cells, a categorical one has categories. Tuples are by analysis bucket.
    """

    start_seconds: float
    """Since the epoch, UTC."""
    bucket_rows: Sequence[int]
    """Rows, nulls included; shape ``(64,)`` as all that is by bucket."""
    bucket_sums: Sequence[int] = ()
    """Sums of the values, in millionths."""
    square_sum: int = 0
    """Sum of the squared values, in millionths."""
    cells: Mapping[int, int] = {}
    """Counts by cell of :mod:`understudy.core.windows.histogram`."""
    categories: Mapping[str, Sequence[int]] = {}
    """Rows by category, each by bucket."""
    bucket_nulls: Sequence[int] = ()
    """Rows without a value; empty where they are not counted, as for predictions."""


def input_subject(name: str) -> str:
    """Return the subject of a model input: its name, marked where that could be taken for another subject."""
    return f"{_INPUT}{name}" if name in OF_ANSWERS or name.startswith((_INPUT, _SKEW)) else name


def skew_subject(name: str) -> str:
    """Return the subject of a feature's served values beside the feature store's."""
    return f"{_SKEW}{name}"


def skewed_feature(subject: str) -> str | None:
    """Return the feature whose served values a subject is about; ``None`` of every other subject."""
    return subject.removeprefix(_SKEW) if subject.startswith(_SKEW) else None


def numeric_window(start_seconds: float, values: FloatArray, buckets: IntArray) -> SubjectWindow:
    """Return the window of numbers; NaN is null. Both arrays have the shape ``(rows,)``."""
    is_null = np.isnan(values)
    present, homes = np.clip(values[~is_null], -MAX_VALUE, MAX_VALUE), buckets[~is_null]
    micros = np.rint(present * MICRO)
    return SubjectWindow(
        start_seconds,
        bucket_rows=_by_bucket(buckets),
        bucket_sums=[int(total) for total in np.bincount(homes, micros, ANALYSIS_BUCKETS)],
        square_sum=int(np.rint(present * present * MICRO).sum()),
        cells=Histogram.of(present.tolist()).counts,
        bucket_nulls=_by_bucket(buckets[is_null]),
    )


def categorical_window(start_seconds: float, values: Sequence[str | None], buckets: IntArray) -> SubjectWindow:
    """Return the window of category names; ``None`` is null. ``buckets`` has one entry for each value."""
    homes: dict[str | None, list[int]] = {}
    for value, bucket in zip(values, buckets.tolist(), strict=True):
        homes.setdefault(value, []).append(bucket)
    nulls = homes.pop(None, [])
    return SubjectWindow(
        start_seconds,
        bucket_rows=_by_bucket(buckets),
        categories={name: _by_bucket(np.array(of_it)) for name, of_it in homes.items() if name is not None},
        bucket_nulls=_by_bucket(np.array(nulls, dtype=np.int64)),
    )


def _by_bucket(buckets: IntArray) -> list[int]:
    counts: list[int] = np.bincount(buckets, minlength=ANALYSIS_BUCKETS).tolist()
    return counts
