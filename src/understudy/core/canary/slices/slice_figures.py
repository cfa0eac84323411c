"""Both sides' figures of each slice that a challenger met, and what is found of it: a table for people.

It decides nothing. What holds a step, or takes a version back, are the names of
:func:`understudy.core.canary.slices.failing_slices.failing_slices`.
"""

from collections.abc import Sequence
from enum import StrEnum
from math import exp
from typing import NamedTuple

from understudy.core.canary.slices.failing_slices import MIN_UNITS, SliceCounts, failing_slices
from understudy.core.prediction_log.call_slices import Slice


class SliceState(StrEnum):
    """What is found of a slice."""

    WORSE = "worse"
    """Beyond doubt: it is named."""
    UNPROVEN = "unproven"
    """It looks worse, and the evidence that a name takes is not there."""
    TOO_EARLY = "too_early"
    """Too few stretches have calls of both versions in it."""
    OK = "pass"


class SliceSide(NamedTuple):
    """One version's calls in a slice."""

    calls: float
    errors: float
    slow: float
    """Answers beyond the champion's 95th percentile of all calls, the challenger's beyond 1.2 times it."""
    log_latency: float
    """The sum of the logarithms of the answers' microseconds."""

    @property
    def error_ratio(self) -> float | None:
        """The share of the calls that failed."""
        return self.errors / self.calls if self.calls else None

    @property
    def slow_ratio(self) -> float | None:
        """The share of the calls that were slow."""
        return self.slow / self.calls if self.calls else None

    @property
    def typical_seconds(self) -> float | None:
        """The geometric mean of the answers' latencies."""
        answers = self.calls - self.errors
        return exp(self.log_latency / answers) / 1e6 if answers > 0 else None


class SliceFigures(NamedTuple):
    """What both versions did in a slice, where it could be compared."""

    slice: Slice
    units: float
    """Stretches of two minutes with calls of both."""
    champion: SliceSide
    challenger: SliceSide


class SliceRow(NamedTuple):
    """A slice as a row of a table."""

    figures: SliceFigures
    state: SliceState


_ORDER = tuple(SliceState)


def slice_rows(figures: Sequence[SliceFigures], counts: SliceCounts) -> list[SliceRow]:
    """Return the slices with what is found of them: the worst first, then those with the most challenger calls."""
    named = {found.counted.slice for found in failing_slices(counts)}
    worst = {one.slice for one in counts.worst if one.failing_units >= MIN_UNITS}
    rows = [SliceRow(one, _state_of(one, named, worst)) for one in figures]
    return sorted(rows, key=lambda row: (_ORDER.index(row.state), -row.figures.challenger.calls, row.figures.slice))


def _state_of(one: SliceFigures, named: set[Slice], worst: set[Slice]) -> SliceState:
    if one.slice in named:
        return SliceState.WORSE
    if one.slice in worst:
        return SliceState.UNPROVEN
    return SliceState.TOO_EARLY if one.units < MIN_UNITS else SliceState.OK
