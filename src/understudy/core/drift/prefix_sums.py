"""Prefix sums over windows, from which the sum of any span of windows costs one subtraction."""

import numpy as np

from understudy.core.drift.baseline import FloatArray
from understudy.core.drift.evidence import Spans


def prefix_sums(values: FloatArray) -> FloatArray:
    """Return the sums over the first 0, 1, 2 … windows; windows are the first axis."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def sums_over(sums: FloatArray, spans: Spans) -> FloatArray:
    """Return the sums over spans from prefix sums; the spans' axes come first."""
    return np.take(sums, spans.ends, axis=0) - np.take(sums, spans.starts, axis=0)
