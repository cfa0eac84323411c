"""A subject's distribution in its baseline and now, as people look at it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from understudy.core.drift.baseline import CategoricalBaseline, FloatArray, NumericBaseline
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.windows.histogram import GAMMA, Histogram, merged, value_of

BINS = 32
_EDGE_RATIO = 0.005
"""What of each side is drawn into the outermost bins: single values far out would leave no room for the others."""
_HALF_CELL = (GAMMA - 1) / (GAMMA + 1)
"""How far a cell reaches to both sides of its middle, relatively."""


class Shapes(NamedTuple):
    """Two distributions in the same bins."""

    edges: Sequence[float]
    """One more than there are bins."""
    baseline: Sequence[float]
    """Values in each bin."""
    now: Sequence[float]


class Shares(NamedTuple):
    """A category's share of the values, from 0 to 1."""

    name: str
    baseline: float
    now: float


def shapes_of(baseline: NumericBaseline, hours: Sequence[SubjectWindow]) -> Shapes | None:
    """Return both distributions; ``None`` when the baseline knows none, or nothing is there now."""
    now = merged(Histogram(hour.cells) for hour in hours)
    known = [own for own in (baseline.histogram, now) if own.counts]
    if len(known) <= 1:
        return None
    lows = [own.quantile(_EDGE_RATIO) or 0.0 for own in known]
    highs = [own.quantile(1 - _EDGE_RATIO) or 0.0 for own in known]
    low, high = min(lows), max(highs)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, BINS + 1)
    return Shapes(edges.tolist(), *(_binned(own.counts, edges).tolist() for own in known))


def shares_of(baseline: CategoricalBaseline, hours: Sequence[SubjectWindow]) -> list[Shares]:
    """Return the shares of the baseline's categories and of those that are new, the one that moved most first."""
    counts: dict[str, int] = {}
    for hour in hours:
        for name, rows in hour.categories.items():
            counts[name] = counts.get(name, 0) + sum(rows)
    total = sum(counts.values()) or 1
    names = dict.fromkeys([*baseline.shares, *counts])
    found = [Shares(name, baseline.shares.get(name, 0.0), counts.get(name, 0) / total) for name in names]
    return sorted(found, key=lambda one: (-abs(one.now - one.baseline), one.name))


def _binned(counts: Mapping[int, int], edges: FloatArray) -> FloatArray:
    """Return how many values each bin has; a cell that lies in several bins is shared out among them."""
    cells = sorted(counts)
    middles = np.array([value_of(cell) for cell in cells])
    numbers = np.array([counts[cell] for cell in cells], dtype=np.float64)
    reach = np.abs(middles) * _HALF_CELL
    # A cell next to zero has no width; it gets one, as a step cannot be shared out.
    reach = np.maximum(reach, (edges[1] - edges[0]) * 1e-6)
    lows, highs = np.clip(middles - reach, edges[0], edges[-1]), np.clip(middles + reach, edges[0], edges[-1])
    bins = np.zeros(len(edges) - 1)
    for low, high, number in zip(lows, highs, numbers, strict=True):
        if high > low:
            inside = np.diff(np.clip(edges, low, high)) / (high - low)
        else:
            inside = np.zeros(len(bins))
            inside[0 if high <= edges[0] else -1] = 1.0
        bins += number * inside
    return bins
