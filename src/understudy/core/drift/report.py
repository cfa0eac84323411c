"""A subject's drift as a value: its state (too early, steady, drifted), figures and the sentence about it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from understudy.core.amounts import amount_words
from understudy.core.drift.baseline import Baseline, CategoricalBaseline
from understudy.core.drift.evidence import Measure

_SHAPE = 0.02
"""Means that differ by less than this many standard deviations say nothing about a direction."""
_CENT = 100
_TWO_DIGITS = 9.95
_READABLE = 1e6
_MINUS = "\N{MINUS SIGN}"
_ARROW = "\N{RIGHTWARDS ARROW}"
IN_POINTS = (Measure.NULLS, Measure.SHARES)
"""Measures whose unit is a share of the rows: told in percentage points."""
_NAMES = {Measure.MEAN: "mean", Measure.WASSERSTEIN: "W1", Measure.PSI: "PSI", Measure.NULLS: "nulls"}


class DriftState(StrEnum):
    """What can be said about a subject; two of the four are neither good nor bad."""

    OK = "ok"
    DRIFT = "drift"
    TOO_EARLY = "too_early"
    NO_BASELINE = "no_baseline"


class Reading(NamedTuple):
    """One measure's value now, beside its limit; both in the measure's unit."""

    measure: Measure
    distance: float
    limit: float
    evidence: float = 0.0
    """The e-detector's value at the last window."""
    evidence_needed: float = 0.0
    """What it must reach for a drift; 0 for a rule without evidence."""

    @property
    def words(self) -> str:
        """The distance as people read it: ``PSI 0.27``, ``mean 0.31 sd``, ``3.7 pts``."""
        if self.measure in IN_POINTS:
            return f"{self.distance * _CENT:.1f} pts"
        return f"{_NAMES[self.measure]} {self.distance:.2f}" + " sd" * (self.measure is Measure.MEAN)


class TextbookTests(NamedTuple):
    """What the usual tests say, for comparison: with many rows they find every difference, however small."""

    chi2: float
    chi2_p_value: float
    ks_distance: float | None = None
    """``None`` for a categorical subject."""
    ks_p_value: float | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """One subject's drift."""

    subject: str
    state: DriftState
    words: str
    rows: int = 0
    """In all windows that were judged, nulls included where they are counted."""
    since_seconds: float | None = None
    """When the drift began, in seconds since the epoch; ``None`` when there is none, or when it is not known."""
    shown: Reading | None = None
    """The measure that found the drift, else the one nearest to its limit; ``None`` while nothing can be compared."""
    readings: tuple[Reading, ...] = ()
    """All measures, over the windows since the drift began, else over the most recent ones."""
    baseline: str = ""
    """The baseline in the terms of the measure that is shown: ``0.318``, ``4 % BR``, ``0.1 % null``."""
    now: str = ""
    """The same of the windows that the readings are of."""
    direction: str = ""
    """Where to: a sign, with the category that moved most; empty when only the shape changed."""
    history: tuple[float, ...] = ()
    """The distance that is shown, of each window judged."""
    history_seconds: tuple[float, ...] = ()
    """When each of these windows starts, in seconds since the epoch."""
    tests: TextbookTests | None = None


class Move(NamedTuple):
    """A category's share in the baseline and now."""

    name: str
    before: float
    after: float

    @property
    def by(self) -> float:
        """The difference."""
        return self.after - self.before


class Present(NamedTuple):
    """A subject over the windows that are looked at, as words need it."""

    mean: float = 0.0
    """Numeric: in the subject's own unit."""
    shift: float = 0.0
    """Numeric: from the baseline's mean, in its standard deviations."""
    null_ratio: float = 0.0
    moves: tuple[Move, ...] = ()
    """Categorical: the category that moved most first."""


def no_baseline_drift(subject: str) -> Drift:
    """Return the drift of a subject that there is nothing to compare with."""
    return Drift(
        subject,
        DriftState.NO_BASELINE,
        f"{subject}: no baseline to compare with; `understudy drift baseline set` makes one.",
    )


def too_early_drift(subject: str, rows: int, missing: str) -> Drift:
    """Return the drift of a subject while its comparison with the baseline would rest on too little."""
    what = f"{rows:,} rows" if rows else "no traffic"
    return Drift(subject, DriftState.TOO_EARLY, f"{subject}: too early, {what}; {missing}.", rows=rows)


def drift_terms(baseline: Baseline, present: Present, measure: Measure) -> tuple[str, str, str]:
    """Return how a report shows the baseline, what is now, and the direction, in the terms of a measure."""
    if measure is Measure.NULLS:
        before, after = baseline.null_ratio or 0.0, present.null_ratio
        return f"{percent_words(before)} null", f"{percent_words(after)} null", _sign(after - before)
    if isinstance(baseline, CategoricalBaseline):
        move = present.moves[0]
        return (
            f"{percent_words(move.before)} {move.name}",
            f"{percent_words(move.after)} {move.name}",
            _sign(move.by) + move.name,
        )
    direction = _sign(present.shift) if abs(present.shift) >= _SHAPE else ""
    return amount_words(baseline.mean), amount_words(present.mean), direction


def drift_words(subject: str, baseline: Baseline, present: Present, shown: Reading, state: DriftState) -> str:
    """Say what changed, how far that is, and how well it is shown."""
    limit = f"{shown.limit * _CENT:.1f}" if shown.measure in IN_POINTS else f"{shown.limit:.2f}"
    far = f"{shown.words} (limit {limit})"
    if state is DriftState.OK:
        return f"{subject}: {far}."
    evidence = f", evidence {_evidence(shown.evidence)} ({shown.evidence_needed:,.0f} is enough)"
    return f"{subject}: {_change(baseline, present, shown.measure)}, {far}{evidence * (shown.evidence_needed > 0)}."


def _change(baseline: Baseline, present: Present, measure: Measure) -> str:
    if isinstance(baseline, CategoricalBaseline) and measure is not Measure.NULLS:
        most = present.moves[:2]
        return ", ".join(
            f"{move.name} {percent_words(move.before)} {_ARROW} {percent_words(move.after)}" for move in most
        )
    before, after, _ = drift_terms(baseline, present, measure)
    return f"{before} {_ARROW} {after}" if measure is Measure.NULLS else f"mean {before} {_ARROW} {after}"


def percent_words(ratio: float) -> str:
    """Return a share as people read it, with two digits: ``0.16 %``, ``61 %``."""
    percent = ratio * _CENT
    return f"{percent:.0f} %" if percent >= _TWO_DIGITS else f"{percent:.2g} %"


def _evidence(value: float) -> str:
    return f"{value:,.0f}" if value < _READABLE else f"{value:.0e}"


def _sign(value: float) -> str:
    return "+" if value > 0 else _MINUS
