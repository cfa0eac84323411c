"""Has a prediction or an input drifted from its baseline? One subject, all its windows, one answer.

Each measure (:class:`Measure`) has a limit: the drift that is tolerated. For each window at which a drift may have
begun there is an e-value for "beyond the limit since then"; their sum, the e-detector, must reach the average run
length times the number of measures. So a subject that stays within its limits gives a false alarm once in that many
windows at most, however many rows a window has and however alike the rows of one entity are.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special
from understudy.core.drift.baseline import Baseline, FloatArray, NumericBaseline
from understudy.core.drift.evidence import Measure, Spans, evidence_spans, log_evidence
from understudy.core.drift.limits import DEFAULT_POLICY, DriftPolicy
from understudy.core.drift.measures import deviation_of, normalised_shares
from understudy.core.drift.prefix_sums import sums_over
from understudy.core.drift.report import (
    Drift,
    DriftState,
    Move,
    Present,
    Reading,
    TextbookTests,
    drift_terms,
    drift_words,
    no_baseline_drift,
    too_early_drift,
)
from understudy.core.drift.running_sums import CategoricalSums, Effects, NumericSums, sums_of
from understudy.core.drift.subject_window import SubjectWindow

OTHERS = "others"
"""Name of all categories together that the baseline does not have, or hardly has."""

_MAX_LOG = 700.0
"""The exponential of more is no float."""


class Alarm(NamedTuple):
    """A drift that is not over."""

    since: int
    """The window at which it most likely began."""
    measure: Measure


class Search(NamedTuple):
    """What the e-detectors came to."""

    alarm: Alarm | None
    log_detectors: dict[Measure, float]
    """At the last window."""


def judge_drift(
    subject: str,
    baseline: Baseline | None,
    windows: Sequence[SubjectWindow],
    policy: DriftPolicy = DEFAULT_POLICY,
    judged_from_seconds: float = -inf,
) -> Drift:
    """Return a subject's drift after the last of its windows.

    Nothing is remembered between two calls: the same windows give the same answer, a drift that was found and is over
    included.

    Args:
        subject: Its name, for the words.
        baseline: What it is compared with.
        windows: In order of time, all of the same length; stretches without traffic may be left out. A drift is never
            older than the first of them.
        policy: The limits.
        judged_from_seconds: Windows that start before it are only history: they tell what the hours of the week are
            like. That takes a week and a half; without it, each hour is compared with the baseline as it is.

    Raises:
        ValueError: If the windows are out of order.
    """
    if baseline is None:
        return no_baseline_drift(subject)
    if any(one.start_seconds >= other.start_seconds for one, other in pairwise(windows)):
        raise ValueError("windows: expected each to start later than the one before")
    first = sum(window.start_seconds < judged_from_seconds for window in windows)
    if first == len(windows):
        return too_early_drift(subject, 0, _missing(policy))
    sums = sums_of(windows, baseline, first)
    judged = [window.start_seconds for window in windows[first:]]
    rows, buckets = _traffic(sums)
    if rows < policy.minimum_rows or buckets < policy.minimum_buckets:
        return too_early_drift(subject, rows, _missing(policy))
    return _judge(subject, baseline, sums, judged, policy)


def _judge(
    subject: str, baseline: Baseline, sums: NumericSums | CategoricalSums, starts: Sequence[float], policy: DriftPolicy
) -> Drift:
    spans = evidence_spans(len(starts))
    effects = sums.effects(spans, policy.rules)
    found = _search(sums, spans, effects, policy)
    alarm = found.alarm
    now = _one_span(alarm.since if alarm else max(0, len(starts) - policy.recent_windows), len(starts))
    readings = _readings(sums.effects(now, policy.rules), found.log_detectors, policy)
    shown = next(
        (one for one in readings if alarm and one.measure is alarm.measure),
        max(readings, key=lambda one: one.distance / one.limit),
    )
    state = DriftState.DRIFT if alarm else DriftState.OK
    present = _present(sums, baseline, now)
    before, after, direction = drift_terms(baseline, present, shown.measure)
    return Drift(
        subject=subject,
        state=state,
        words=drift_words(subject, baseline, present, shown, state),
        rows=_traffic(sums)[0],
        since_seconds=starts[alarm.since] if alarm else None,
        shown=shown,
        readings=readings,
        baseline=before,
        now=after,
        direction=direction,
        history=tuple(effects[shown.measure].distance[0].tolist()),
        history_seconds=tuple(starts),
        tests=_textbook_tests(sums, now),
    )


def _search(sums: NumericSums | CategoricalSums, spans: Spans, effects: Effects, policy: DriftPolicy) -> Search:
    """Go through the windows in order: a drift is found, is over, and may be found anew from windows after that."""
    measures = list(effects)
    log_e = np.stack([log_evidence(effects[measure]) for measure in measures])
    needed = log(policy.run_length_windows * len(measures))
    restart, alarm = 0, None
    while True:
        started = np.where(spans.starts >= restart, log_e, -inf)
        detectors: FloatArray = np.logaddexp.reduce(started, axis=1)
        found_at = _first(detectors.max(axis=0) >= needed, restart)
        if found_at is None:
            break
        measure = measures[int(detectors[:, found_at].argmax())]
        alarm = Alarm(_began(sums, measure, restart, found_at, policy), measure)
        over_at = _first(_is_within(sums, policy), found_at + policy.recovery_windows)
        if over_at is None:
            break
        restart, alarm = over_at + 1, None
    return Search(alarm, dict(zip(measures, detectors[:, -1].tolist(), strict=True)))


def _is_within(sums: NumericSums | CategoricalSums, policy: DriftPolicy) -> NDArray[np.bool_]:
    """Return for each window whether the last ones up to it have rows enough together and are within all limits."""
    ends = np.arange(1, len(sums.rows))
    effects = sums.effects(Spans(np.maximum(ends - policy.recovery_windows, 0), ends), policy.rules)
    worst = np.max([excess for effect in effects.values() for excess in effect.excesses], axis=0)
    usable = np.all([effect.is_usable for effect in effects.values()], axis=0)
    return np.asarray(usable & (worst <= 0))


def _began(
    sums: NumericSums | CategoricalSums, measure: Measure, restart: int, found_at: int, policy: DriftPolicy
) -> int:
    """Return the window from which on the drift is shown best."""
    starts = np.arange(restart, found_at + 1)
    effect = sums.effects(Spans(starts, np.full_like(starts, found_at + 1)), policy.rules)[measure]
    return restart + int(log_evidence(effect).argmax())


def _first(flags: NDArray[np.bool_], start: int) -> int | None:
    """Return the first position from ``start`` on that is set."""
    found = np.flatnonzero(flags[start:])
    return start + int(found[0]) if found.size else None


def _one_span(start: int, end: int) -> Spans:
    return Spans(np.array([start]), np.array([end]))


def _readings(effects: Effects, log_detectors: dict[Measure, float], policy: DriftPolicy) -> tuple[Reading, ...]:
    needed = policy.run_length_windows * len(effects)
    return tuple(
        Reading(
            measure,
            distance=float(effect.distance[0]),
            limit=effect.limit,
            evidence=exp(min(log_detectors[measure], _MAX_LOG)),
            evidence_needed=needed,
        )
        for measure, effect in effects.items()
    )


def _present(sums: NumericSums | CategoricalSums, baseline: Baseline, now: Spans) -> Present:
    """Return what words need of the windows that are looked at, freed of the season."""
    null_ratio = 0.0
    if sums.nulls is not None:
        null_ratio = _mean_of(sums.nulls.nulls, sums.nulls.rows, now)
    if isinstance(sums, CategoricalSums):
        moves = map(Move, (*sums.names, OTHERS), sums.expected.tolist(), sums.shares(now)[0].tolist())
        return Present(null_ratio=null_ratio, moves=tuple(sorted(moves, key=lambda move: -abs(move.by))))
    assert isinstance(baseline, NumericBaseline)
    shift = _mean_of(sums.sums, sums.rows, now)
    return Present(mean=baseline.mean + shift * deviation_of(baseline), shift=shift, null_ratio=null_ratio)


def _mean_of(sums: FloatArray, rows: FloatArray, span: Spans) -> float:
    return float(sums_over(sums, span).sum() / max(sums_over(rows, span).sum(), 1.0))


def _textbook_tests(sums: NumericSums | CategoricalSums, now: Spans) -> TextbookTests | None:
    """Return the chi-squared test over PSI's bins or the categories, and the Kolmogorov-Smirnov test over the grid."""
    rows = float(sums_over(sums.rows, now).sum())
    if rows == 0:
        return None
    shares = sums.shares(now)[0]
    if isinstance(sums, CategoricalSums):
        return _chi2(shares, sums.expected, rows)
    if sums.grid is None:
        return None
    distance = float(np.abs(np.cumsum(shares - sums.grid.shares)).max())
    tests = _chi2(sums.grid.psi_bins(shares), sums.grid.psi_bins(sums.grid.shares), rows)
    return tests._replace(ks_distance=distance, ks_p_value=float(special.kolmogorov(sqrt(rows) * distance)))


def _chi2(shares: FloatArray, expected: FloatArray, rows: float) -> TextbookTests:
    wanted = normalised_shares(np.maximum(expected, 1 / rows))
    value = float(rows * (np.square(shares - wanted) / wanted).sum())
    return TextbookTests(value, float(special.chdtrc(max(len(wanted) - 1, 1), value)))


def _traffic(sums: NumericSums | CategoricalSums) -> tuple[int, int]:
    """Return the rows of all windows, nulls included where they are counted, and the buckets that have any."""
    by_bucket = (sums.rows if sums.nulls is None else sums.nulls.rows)[-1]
    return int(by_bucket.sum()), int((by_bucket > 0).sum())


def _missing(policy: DriftPolicy) -> str:
    return (
        f"a comparison rests on at least {policy.minimum_rows:,} rows of entities in {policy.minimum_buckets} of the "
        "64 analysis buckets"
    )
