"""Sequential evidence of drift over many spans of time at once: design effect of clustered rows, margin, strength.

A *span* is a run of neighbouring windows: from the one at which something may have changed to the one that is judged.
Each span gives one e-value, "the effect is beyond the margin"; the sum over the starts is an e-detector.

Source:
    Shin, Ramdas and Rinaldo, "E-detectors" (arXiv 2203.03532): where nothing is beyond the margin, the sum of
    e-processes started at every window takes on average at least ``A`` windows to reach ``A``. Leaving starts out makes
    it smaller, so :data:`LAGS` costs power between two lags and never validity.
"""

from enum import StrEnum
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special
from understudy.core.drift.baseline import FloatArray
from understudy.core.drift.subject_window import IntArray

LAGS: IntArray = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256])
"""Lengths of the spans that end at a window, in windows."""
EFFECT_PER_LIMIT = 2.0
"""The excess that the mixture is centred on, as a multiple of the limit: 0.2 sd beyond a margin of 0.1. It sets which
drifts are found soonest, not how often there is a false alarm."""

_MAX_Z = 37.0
"""Beyond it the normal tail is zero as a float."""


class Measure(StrEnum):
    """A way to tell how far from the baseline something is."""

    MEAN = "mean"
    """Difference of means in the baseline's standard deviations."""
    WASSERSTEIN = "wasserstein"
    """Area between the cumulative distributions in the baseline's standard deviations."""
    PSI = "psi"
    """Population stability index: the sum of (p - q) ln(p / q) over the baseline's tenths, or over categories."""
    SHARES = "shares"
    """Difference of the share of the category that moved most, 0 to 1."""
    NULLS = "nulls"
    """Difference of the null shares, 0 to 1."""


class Spans(NamedTuple):
    """Spans as half-open ranges of window numbers; the arrays are broadcast together. An empty span is none."""

    starts: IntArray
    ends: IntArray


class Clustered(NamedTuple):
    """A mean over rows that come in clusters; all arrays have the spans' shape."""

    rows: FloatArray
    mean: FloatArray
    variance: FloatArray
    """Of the mean."""
    buckets: FloatArray
    """How many have rows."""


class Effect(NamedTuple):
    """One measure over spans; all arrays have the spans' shape."""

    distance: FloatArray
    """Without what chance alone would give, never below 0, in the measure's unit."""
    shift: FloatArray
    """The signed difference, or the distance where there is no sign."""
    excesses: tuple[FloatArray, ...]
    """How far beyond the limit, in each direction that is looked in."""
    error: FloatArray
    """Standard error of the excess."""
    buckets: FloatArray
    limit: float
    is_usable: NDArray[np.bool_]
    """Whether there are rows and buckets enough for the error to be believed."""


def evidence_spans(windows: int) -> Spans:
    """Return the spans that evidence of drift is gathered over: for each lag and window the one that ends with it.

    The shape is ``(lags, windows)``. Spans that would begin before the first window are empty.
    """
    ends = np.arange(1, windows + 1)[None, :]
    starts = ends - LAGS[:, None]
    return Spans(np.where(starts < 0, ends, starts), ends)


def clustered(rows: FloatArray, sums: FloatArray) -> Clustered:
    """Return means of clustered rows, from rows and sums by bucket on the last axis.

    The variance is that of a ratio of totals over independent buckets, ``B / (B - 1) · Σ (sum - rows · mean)² / n²``:
    rows of one entity may be as alike as they please, within a window and from one window to the next.
    """
    total = rows.sum(axis=-1)
    mean = _ratio(sums.sum(axis=-1), total)
    buckets = (rows > 0).sum(axis=-1).astype(np.float64)
    squares = np.square(sums - rows * mean[..., None]).sum(axis=-1)
    return Clustered(total, mean, _ratio(buckets, buckets - 1) * _ratio(squares, total * total), buckets)


def design_effect(found: Clustered, value_variance: FloatArray) -> FloatArray:
    """Return how many times the variance of the mean is that of independent rows, at least 1."""
    return np.maximum(1.0, _ratio(found.variance * found.rows, value_variance))


def log_evidence(effect: Effect) -> FloatArray:
    """Return ln e of "beyond the limit" for each span, minus infinity where it cannot be told; directions are averaged.

    Source:
        Normal mixture over positive effects (Robbins; Waudby-Smith et al., arXiv 2103.06476), with the half-normal's
        scale at :data:`EFFECT_PER_LIMIT` limits: ln e = ln 2 - ½ ln(κ + 1) + z²κ / 2(κ + 1) + ln Φ(z √(κ / (κ + 1))),
        κ = (scale / error)². The error is an estimate from the buckets, so z is the t-statistic's normal equivalent.
    """
    kappa = np.square(EFFECT_PER_LIMIT * effect.limit / effect.error)
    share = kappa / (kappa + 1)
    logs = []
    for excess in effect.excesses:
        z = _normal_equivalent(excess / effect.error, effect.buckets - 1)
        logs.append(log(2) - np.log1p(kappa) / 2 + z * z * share / 2 + special.log_ndtr(z * np.sqrt(share)))
    mean = np.logaddexp.reduce(logs, axis=0) - log(len(logs))
    return np.where(effect.is_usable, mean, -np.inf)


def _normal_equivalent(t: FloatArray, degrees: FloatArray) -> FloatArray:
    """Return the z with t's tail probability. A negative t stays what it is: that only makes the evidence smaller."""
    z = np.maximum(t, -_MAX_Z)
    above = t > 0
    z[above] = np.minimum(-special.ndtri(special.stdtr(np.maximum(degrees[above], 1.0), -t[above])), _MAX_Z)
    return z


def _ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return the quotient, and 0 where there is nothing to divide by."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=denominator > 0)
